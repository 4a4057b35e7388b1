// The signals that end a program: SIGINT and SIGTERM. SIGHUP, which comes when a terminal closes, does not.
#pragma once

#include <signal.h>

#include <string>
#include <utility>

#include "base/log.h"

namespace netfold::apps {

class EndSignals {
 public:
  // Make it before any thread starts. Threads inherit the mask, so only the code that waits for these signals gets
  // them.
  explicit EndSignals(std::string program) : program_(std::move(program)) {
    sigemptyset(&waited_for_);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&waited_for_, each);
    pthread_sigmask(SIG_BLOCK, &waited_for_, nullptr);
  }

  const sigset_t& waited_for() const { return waited_for_; }

  // Whether this signal, which came, ends the program.
  bool is_end(int signal) const {
    if (signal == SIGHUP) {
      log::info("SIGHUP came, such as from a terminal that was closed: the {} goes on, SIGTERM stops it", program_);
      return false;
    }
    return true;
  }

  // The program is ending: the next signal kills it.
  void end_at_next() const {
    sigset_t ends = waited_for_;
    sigdelset(&ends, SIGHUP);
    pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
  }

 private:
  std::string program_;
  sigset_t waited_for_;
};

}  // namespace netfold::apps

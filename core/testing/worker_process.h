// A rank at a switch. What it runs is the real thing, as joining and the driver run it: JoinAttempts, then
// SwitchSession.
#pragma once

#include <memory>

#include "group/via_switch/switch_session.h"
#include "membership/join_attempts.h"
#include "testing/rank_process.h"

namespace netfold::testing {

class WorkerProcess final : public RankProcess {
 public:
  WorkerProcess(Surroundings& around, Options options, std::function<void()> on_exit);

 private:
  void join() override;
  void sleep(bool has_moved) override;
  std::optional<Nanoseconds> part(Nanoseconds now) override;
  void let_go() override;
  void begin_attempt();
  void start(std::unique_ptr<membership::ControlConnection> control);

  membership::JoinOptions join_options_;
  std::unique_ptr<link::Link> link_;
  std::unique_ptr<membership::JoinAttempts> attempts_;
  std::uint64_t attempt_ = 0;
  std::unique_ptr<membership::ControlConnection> refused_;  // an attempt that failed: it says goodbye
};

}  // namespace netfold::testing

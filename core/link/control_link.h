// Control messages, a line each, to one peer and back. This page is the whole contract; ControlSocket (tcp/) and the
// links of a simulated cluster implement it. Nothing here blocks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace netfold::link {

class ControlLink {
 public:
  virtual ~ControlLink() = default;

  enum class State {
    kOpen,
    kClosed,   // by the peer, or broken
    kGarbage,  // the peer sent an endless line
  };
  struct Outcome {
    State state = State::kOpen;
    std::string why = {};  // in words, unless open
  };

  // Reads what has come, but at most some of it, so that no peer keeps the others waiting.
  virtual Outcome read(const std::function<void(std::string_view)>& on_line) = 0;
  // Sends now what the link takes and keeps the rest, up to a bound: a peer that does not read is closed.
  virtual Outcome write(std::string_view bytes) = 0;
  virtual Outcome flush() = 0;
  virtual bool wants_to_write() const = 0;
  // Whether the peer's machine has not confirmed all that was written. It confirms also for a process that does not
  // read.
  virtual bool has_unconfirmed() const = 0;
  // How long a confirmation takes at most, as a rule: the mean and four times the deviation, as TCP's own
  // retransmission timer counts it (RFC 6298).
  virtual Nanoseconds usual_confirmation() const = 0;
  // After this the peer sees the end; reading (and throwing away) goes on until it closes too. Closing at once would
  // make the kernel forget what it has not delivered yet.
  virtual void shut_down_writing() = 0;

  virtual int descriptor() const = 0;  // to poll; -1 for a link in memory
};

}  // namespace netfold::link

// Something that runs in virtual time: a process of a simulated cluster. It runs when it is woken, and may be paused,
// as by SIGSTOP.
#pragma once

#include <algorithm>
#include <memory>

#include "testing/timeline.h"

namespace netfold::testing {

class Actor {
 public:
  explicit Actor(Timeline& timeline) : timeline_(timeline) {}
  virtual ~Actor() = default;
  Actor(const Actor&) = delete;

  void pause_until(Nanoseconds when) { paused_until_ = std::max(paused_until_, when); }
  void go_on() {
    paused_until_ = 0;
    wake();
  }

 protected:
  // Everything that can be done now. It says when to be woken next.
  virtual void run() = 0;

  void wake() { wake_at(timeline_.now() + kWakeUpTime); }
  void wake_at(Nanoseconds when) {
    if (when == kNever) return;
    when = std::max({when, paused_until_, timeline_.now() + kMicrosecond});
    if (when >= wakes_at_) return;
    wakes_at_ = when;
    timeline_.at(when, [this, when, alive = std::weak_ptr<int>(alive_)] {
      if (alive.expired() || wakes_at_ != when) return;
      wakes_at_ = kNever;
      if (timeline_.now() < paused_until_) return wake_at(paused_until_);
      run();
    });
  }

  // Expires with this: for events that must not outlive it.
  const std::shared_ptr<int>& alive() const { return alive_; }

  Timeline& timeline_;

 private:
  static constexpr Nanoseconds kWakeUpTime = 3 * kMicrosecond;

  std::shared_ptr<int> alive_ = std::make_shared<int>();
  Nanoseconds wakes_at_ = kNever, paused_until_ = 0;
};

}  // namespace netfold::testing

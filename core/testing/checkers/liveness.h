// Once nothing goes wrong any more, what can finish finishes: every process ends within its time, and the next life of
// every job works without an error.
#pragma once

#include <algorithm>
#include <string>

#include "base/result.h"
#include "testing/history.h"
#include "testing/plan.h"

namespace netfold::testing {

class LivenessChecker {
 public:
  LivenessChecker(const Plan& plan, History& history) : plan_(plan), history_(history) {}

  // For all processes to end, once faults have: each joins or folds at most for its timeout, or until the switch has
  // seen the others die.
  Nanoseconds ending_max() const { return 2 * longest_timeout() + silence_max() + working_max() + kMargin; }
  // For a whole life of every job, started anew.
  Nanoseconds life_max() const { return silence_max() + working_max() + kMargin; }
  // For the switch to forget the dead, and its connections.
  Nanoseconds forgetting_max() const { return 12 * kSecond + 2 * silence_max(); }

  // Until a silent worker or switch is noticed, at the latest.
  Nanoseconds silence_max() const { return from_seconds(8 * plan_.heartbeat_s); }

  void on_last_life() { is_last_life_ = true; }
  void on_error(Party rank, const Error& error) {
    if (!is_last_life_) return;
    history_.violate("liveness", fmt::format("{} fails though nothing goes wrong any more: {}",
                                             History::to_string(rank), error.message));
  }
  void on_late(Party rank, const char* doing) {
    history_.violate("liveness",
                     fmt::format("{} is still {} after the time it may take", History::to_string(rank), doing));
  }

 private:
  static constexpr Nanoseconds kMargin = 4 * kSecond;

  Nanoseconds longest_timeout() const {
    double longest_s = 0;
    for (const JobPlan& job : plan_.jobs) longest_s = std::max(longest_s, job.timeout_s);
    return from_seconds(longest_s);
  }
  Nanoseconds working_max() const {
    Nanoseconds longest = 0;
    for (const JobPlan& job : plan_.jobs) {
      longest = std::max(longest, static_cast<Nanoseconds>(job.tensors.size() + 1) * (job.compute_max + kSecond / 4));
    }
    return longest;
  }

  const Plan& plan_;
  History& history_;
  bool is_last_life_ = false;
};

}  // namespace netfold::testing

// Every error names a rank or the switch, and that one really was at fault: it was stopped, dead, cut off or gone, or
// had given up itself, since the reporter had to do with it.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "base/result.h"
#include "testing/history.h"

namespace netfold::testing {

class CulpritChecker {
 public:
  explicit CulpritChecker(History& history) : history_(history) {}

  // `since`: troubles that ended before then cannot be the cause.
  void check(Party reporter, const Error& error, Nanoseconds since) {
    history_.note("{} reports: {}", History::to_string(reporter), error.message);
    if (error.code == ErrorCode::kMismatch && names_who_disagrees(reporter, error, since)) return;
    // A switch that was paused may not have missed the rank's former process yet, and then refuses the new one, which
    // gives up after the time that a switch needs for that.
    const bool runs_already = error.message.find(kRunsAlready) != std::string::npos;
    if (runs_already && history_.was_in_trouble(reporter, since, trouble::kUnnoticed)) return;
    // A switch that heard nothing from a worker in time refuses it; then one of the two was in trouble.
    const bool was_silent = error.message.find(kNoJoin) != std::string::npos;
    const bool names_switch = (error.code == ErrorCode::kSwitchFailed || was_silent) && error.rank == kNoRank;
    const Party blamed = names_switch ? kTheSwitch : Party{reporter.job, error.rank};
    const bool names_nobody = !names_switch && error.rank == kNoRank;
    // A way that is blocked is the trouble of the rank at its end, which may then rightly blame the switch, or the rank
    // at the other end.
    const bool may_blame_others = names_switch ? history_.was_in_trouble(reporter, since)
                                               : may_blame_ranks(source_of(reporter, error), error, since);
    const bool is_at_fault =
        history_.was_in_trouble(blamed, since) || may_blame_others || names_circle(reporter, error, since);
    if (!names_nobody && is_at_fault) return;
    history_.violate("culprit",
                     fmt::format("{} blames {}: {}", History::to_string(reporter),
                                 names_nobody ? "nobody" : History::to_string(blamed) + ", wrongly", error.message));
  }

 private:
  // The rank that noticed it, if the reporter passes on its word.
  static Party source_of(Party reporter, const Error& error) {
    const std::size_t at = error.message.find(kSays);
    return at == std::string::npos ? reporter : Party{reporter.job, number_at(error, at + kSays.size())};
  }
  static int number_at(const Error& error, std::size_t place) {
    int number = -1;
    std::from_chars(error.message.data() + place, error.message.data() + error.message.size(), number);
    return number;
  }

  // What a rank finds that has lost its way to others, or asks for something that they do not do, or slept while they
  // finished: they leave a timeout after the last byte that its buffers took.
  bool may_blame_ranks(Party source, const Error& error, Nanoseconds since) const {
    if (history_.was_in_trouble(source, since, trouble::kCut)) return true;
    if (history_.was_in_trouble(source, since, trouble::kCutOff)) return true;
    return error.message.find(kMustAgree) != std::string::npos &&
           (history_.was_in_trouble(source, since, trouble::kDisagreeing) ||
            history_.was_in_trouble(source, since, trouble::kPaused));
  }

  // Where ranks wait for each other in a circle, all of it is named: it does not show which of its links is broken.
  bool names_circle(Party reporter, const Error& error, Nanoseconds since) const {
    const std::size_t start = error.message.find(kCircle);
    if (start == std::string::npos) return false;
    const std::size_t end = error.message.find(" within", start);
    for (std::size_t at = start + kCircle.size(); at < end; at = error.message.find(kAnd, at) + kAnd.size()) {
      if (history_.was_in_trouble({reporter.job, number_at(error, at)}, since)) return true;
      if (error.message.find(kAnd, at) > end) break;
    }
    return false;
  }

  // Where two ranks disagree, both are named: neither knows which of them the others agree with.
  bool names_who_disagrees(Party reporter, const Error& error, Nanoseconds since) const {
    for (std::size_t at = 0; (at = error.message.find("rank ", at)) != std::string::npos; at += 5) {
      const Party named{reporter.job, number_at(error, at + 5)};
      if (history_.was_in_trouble(named, since, trouble::kDisagreeing)) return true;
    }
    return false;
  }

  static constexpr std::string_view kSays = "(says rank ", kCircle = "nothing has moved between ranks ", kAnd = " and ",
                                    kMustAgree = "ranks must submit the same collectives",
                                    kNoJoin = "no 'join' came within", kRunsAlready = "is running already";

  History& history_;
};

}  // namespace netfold::testing

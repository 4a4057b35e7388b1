// Notices that a path no longer carries packets of the size that a job uses, though it carries small ones: its MTU has
// shrunk. While nothing makes progress, pairs of a large and a small probe go to the switch, which sends both back.
// A pure state machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace netfold::group {

class PathWatch {
 public:
  // True if a pair should be sent now, under the numbers large() and small().
  bool begin_pair(Nanoseconds now, Nanoseconds last_progress) {
    if (now < begin_at(last_progress)) return false;
    if (sent_ && small_has_come_) ++lost_;
    sent_ = now;
    small_has_come_ = false;
    number_ += 2;
    return true;
  }
  std::uint32_t large() const { return number_; }
  std::uint32_t small() const { return number_ + 1; }

  void on_answer(std::uint32_t number, Nanoseconds now) {
    if (number == small()) small_has_come_ = true;
    if (number % 2 != 0) return;
    lost_ = 0;  // the path carries it; progress waits for something else
    sent_.reset();
    rests_until_ = now + kRest;
  }

  bool has_shrunk() const { return lost_ >= kPairs; }
  Nanoseconds begin_at(Nanoseconds last_progress) const {
    const Nanoseconds stalled = std::max(last_progress + kStall, rests_until_);
    return sent_ ? std::max(stalled, *sent_ + kBetween) : stalled;
  }

 private:
  // After so long without progress; so many pairs of which only the small one came back. A third of all packets may be
  // lost without a false alarm in a hundred stalls.
  static constexpr Nanoseconds kStall = 100 * kMillisecond, kBetween = 50 * kMillisecond, kRest = kSecond;
  static constexpr int kPairs = 8;

  std::uint32_t number_ = 0x8000'0000;  // the search for the MTU counted from 0
  std::optional<Nanoseconds> sent_;
  bool small_has_come_ = false;
  int lost_ = 0;
  Nanoseconds rests_until_ = 0;
};

}  // namespace netfold::group

// When a switch takes much less than it was thought to take, the ranks take portions back that none of them has handed
// over yet (kept_parts.h), and sum them among themselves. Rank 0 sees it, and asks all to hand nothing more to that
// switch. Each says how many parts it has handed over. Rank 0 then says which parts the ranks take: from the first that
// no rank has handed over. So all take the same. Meanwhile the switch works on what it has. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "group/via_both/switch_returns.h"

namespace netfold::group {

// Of rank 0: what it has asked.
class TakingBack {
 public:
  explicit TakingBack(int world) : handed_(static_cast<std::size_t>(world)) {}

  void ask(SwitchLife of);
  void hear(int rank, SwitchLife of, std::uint64_t handed);
  void forget() { of_.reset(); }
  const std::optional<SwitchLife>& asked() const { return of_; }
  std::optional<int> waits_for() const;  // the lowest rank that has not answered; none: all have
  // The first part that no rank has handed over, once all have answered.
  std::uint64_t first() const;

 private:
  std::optional<SwitchLife> of_ = {};
  std::vector<std::optional<std::uint64_t>> handed_;  // by rank
};

// How fast a switch takes data now, and what a rank receives from the others meanwhile: a rank that is late slows both
// ways down, and says nothing of the switch. Neither does it while little comes back for a moment, and much in the next
// one. So what counts is the fastest moment of the last ones.
class SwitchRate {
 public:
  // So many chunks have come back so far, and so many bytes from other ranks. `is_busy`: more chunks are on their way.
  void look(Nanoseconds now, std::uint64_t chunks, std::uint64_t among_ranks, bool is_busy);
  // Chunks a second, if that can be told: as it would be if the ranks received `ranks_bytes_s`.
  std::optional<double> chunks_s(double ranks_bytes_s) const;
  bool is_moving(Nanoseconds now) const { return is_busy_ && now - moved_at_ <= kStall; }

 private:
  static constexpr Nanoseconds kStall = 20 * kMillisecond, kMoment = 20 * kMillisecond;
  static constexpr std::size_t kMoments = 5;

  struct Moment {
    double chunks_s, ranks_bytes_s;
  };
  bool is_busy_ = false;
  Nanoseconds begun_ = 0, moved_at_ = 0;                                 // the moment that is not over
  std::uint64_t chunks_ = 0, chunks_at_begin_ = 0, ranks_at_begin_ = 0;  // so far
  std::deque<Moment> moments_;
};

// The work that is left, in bytes of tensors for the switch, and in bytes that a rank receives among the ranks.
struct Load {
  double in_switch = 0, switch_bytes_s = 0;
  double among_ranks = 0, ranks_bytes_s = 0;
  double received_each = 0;  // among the ranks, for each byte of a tensor
};
// How many bytes to take back so that both end together; 0: it is not worth it.
double bytes_to_take_back(const Load& load);

}  // namespace netfold::group

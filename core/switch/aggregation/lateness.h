// Which worker of a job the others wait for, and how long: what `netfold why` and /metrics tell.
//
// The wait for a chunk begins when half of its contributions are in, or when the chunk folded before it was,
// whichever is later; it ends with the last contribution, and that worker is counted. So the waits of a job never
// overlap, and add up to at most the time that passed. A worker that computes longer than the others is silent once
// a tensor: a *pause*. A worker with a slow or lossy link makes many short waits, and pauses too where cores are
// busy: `netfold why` compares the two (python/netfold/why/verdict.py).
//
// No clock: the time is handed in, once a batch of packets is exact enough. One thread writes, any may read.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/counter.h"

namespace netfold::switching {

// Longer than most networks let a packet wait, and than the time of a batch is exact.
constexpr Nanoseconds kPauseLeast = 2 * kMillisecond;

// Of one worker, or of the switch below that stands for several.
struct RankCounters {
  std::uint64_t came_last = 0;  // chunks whose last contribution was this one's
  std::uint64_t waited_ns = 0;  // for those contributions
  std::uint64_t pauses = 0;     // waits of kPauseLeast or more
  std::uint64_t paused_ns = 0;  // in those waits; a part of waited_ns
  std::uint64_t lost = 0;       // contributions asked for again, and results sent again: packets lost on its link

  // Of another shard. Shards wait at the same time, so their times are not added: the longest counts.
  RankCounters& operator+=(const RankCounters& other);
};

class Lateness {
 public:
  Lateness(std::uint16_t world, std::size_t places) : world_(world), slots_(places), ranks_(world) {}

  // A contribution of `rank` to the chunk in `place` was kept.
  void on_contribution(std::uint16_t rank, std::uint32_t place, bool is_folded, Nanoseconds now);
  void on_lost(std::uint16_t rank) { ranks_[rank].lost.add(1); }
  std::vector<RankCounters> snapshot() const;  // by place; from any thread

 private:
  struct Slot {
    std::uint16_t arrived = 0;
    Nanoseconds half_at = 0;
  };
  struct Rank {
    Counter came_last, waited_ns, pauses, paused_ns, lost;
  };

  std::uint16_t world_;
  std::vector<Slot> slots_;
  std::vector<Rank> ranks_;
  Nanoseconds folded_at_ = 0;  // the last chunk
};

}  // namespace netfold::switching

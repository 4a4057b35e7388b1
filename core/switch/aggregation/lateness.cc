#include "switch/aggregation/lateness.h"

#include <algorithm>

namespace netfold::switching {

RankCounters& RankCounters::operator+=(const RankCounters& other) {
  came_last += other.came_last;
  lost += other.lost;
  waited_ns = std::max(waited_ns, other.waited_ns);
  pauses = std::max(pauses, other.pauses);
  paused_ns = std::max(paused_ns, other.paused_ns);
  return *this;
}

void Lateness::on_contribution(std::uint16_t rank, std::uint32_t place, bool is_folded, Nanoseconds now) {
  Slot& slot = slots_[place];
  if (++slot.arrived == (world_ + 1) / 2) slot.half_at = now;
  if (!is_folded) return;
  Rank& last = ranks_[rank];
  const Nanoseconds waited = std::max<Nanoseconds>(now - std::max(slot.half_at, folded_at_), 0);
  last.came_last.add(1);
  last.waited_ns.add(static_cast<std::uint64_t>(waited));
  if (waited >= kPauseLeast) {
    last.pauses.add(1);
    last.paused_ns.add(static_cast<std::uint64_t>(waited));
  }
  folded_at_ = now;
  slot.arrived = 0;
}

std::vector<RankCounters> Lateness::snapshot() const {
  std::vector<RankCounters> all;
  for (const Rank& rank : ranks_) {
    all.push_back(
        {rank.came_last.get(), rank.waited_ns.get(), rank.pauses.get(), rank.paused_ns.get(), rank.lost.get()});
  }
  return all;
}

}  // namespace netfold::switching

// Which elements a rank's memory holds. Schedules count in elements of one buffer that all ranks share in thought: in a
// reduce-scatter a rank's `in` is the whole of it and `out` its own part, in an all-gather the other way round.
#pragma once

#include <cstddef>

#include "schedule/schedule.h"

namespace netfold::group {

struct BufferLayout {
  std::size_t part = 0;  // elements of one part
  int parts = 1;         // as many as ranks where each has one of its own, else the buffer is one
  schedule::Segment in{}, out{};

  std::size_t whole() const { return part * static_cast<std::size_t>(parts); }
};

// `count`: elements of a rank's own part in a reduce-scatter and an all-gather, of the whole buffer else. `root`: of a
// reduce; the others end with nothing.
inline BufferLayout buffer_layout_of(schedule::Collective collective, std::size_t count, int world, int rank,
                                     int root = 0) {
  using schedule::Collective;
  if (collective == Collective::kBarrier) return {1, 1, {}, {}};  // a token that belongs to no rank
  if (collective == Collective::kReduce) return {count, 1, {0, count}, {0, rank == root ? count : 0}};
  const bool scatters = collective == Collective::kReduceScatter, gathers = collective == Collective::kAllGather;
  const int parts = scatters || gathers ? world : 1;
  const schedule::Segment whole{0, count * static_cast<std::size_t>(parts)};
  const schedule::Segment own = schedule::part_of(whole, parts, scatters || gathers ? rank : 0);
  return {count, parts, gathers ? own : whole, scatters ? own : whole};
}

// Those that sum; the others copy.
inline bool folds(schedule::Collective collective) {
  return collective == schedule::Collective::kAllReduce || collective == schedule::Collective::kReduceScatter ||
         collective == schedule::Collective::kReduce;
}

}  // namespace netfold::group

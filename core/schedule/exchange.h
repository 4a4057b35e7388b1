// Collectives that only move elements from one rank's memory to another's: all-to-all, gather and scatter, with parts
// of any size. Unlike in schedule.h, ranks have no buffer in common. A rank counts in its own memory: first what it
// hands over, one part behind the other in the order of ranks, then what it gets, in the same order.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/schedule.h"

namespace netfold::schedule {

// Elements by rank, alike at both ends: what this one sends to a rank, that one receives from this one.
struct Parts {
  std::vector<std::size_t> sends, receives;

  std::size_t sent() const;      // all together
  std::size_t received() const;  // all together
};

// The parts of an all-to-all, gather or scatter in which all parts that are moved have `count` elements.
Parts equal_parts(Collective collective, int world, int rank, int root, std::size_t count);

// To the rank at distance d and from the one at distance -d in step d. Where both ranks take part but have nothing for
// each other, a transfer of no elements lets them notice if one of them means otherwise. A rank's part for itself is
// not transferred: it is copied.
Steps exchange(Collective collective, int rank, int root, const Parts& parts);

}  // namespace netfold::schedule

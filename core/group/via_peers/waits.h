// The rank that delays all others. When one rank stalls, soon all wait, and most of them for ranks that only wait
// themselves. So each says for whom it waits, and the stalled rank is the one that others wait for and that itself does
// not wait.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace netfold::group {

// The last report of a rank about itself.
struct Standing {
  std::vector<int> waits_for;  // ranks, every one of which must move before it can; empty: it has not said so
  Nanoseconds moved_at = 0;    // when it said that it moves on
};

struct Stall {
  int rank = kNoRank;        // kNoRank: they wait for each other
  Nanoseconds moved_at = 0;  // when that rank, or any of the circle, moved last, as far as is known
  std::vector<int> circle;   // else: ranks that wait only for each other
};

// Follows the waits from rank `from`, by rank in `standings`. Of several ranks that do not wait it is the one that
// moved longest ago, then the lowest.
Stall find_stall(const std::vector<Standing>& standings, int from);

}  // namespace netfold::group

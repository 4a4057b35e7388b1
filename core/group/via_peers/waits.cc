#include "group/via_peers/waits.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace netfold::group {
namespace {

// The ranks that `from` waits for, those that they wait for, and so on.
std::set<int> behind(const std::vector<Standing>& standings, int from) {
  std::set<int> found;
  std::vector<int> open{from};
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    for (const int next : standings[static_cast<std::size_t>(rank)].waits_for) {
      const bool is_rank = next >= 0 && static_cast<std::size_t>(next) < standings.size();
      if (is_rank && found.insert(next).second) open.push_back(next);
    }
  }
  return found;
}

}  // namespace

Stall find_stall(const std::vector<Standing>& standings, int from) {
  Stall stall;
  for (const int rank : behind(standings, from)) {
    const auto& [waits_for, moved_at] = standings[static_cast<std::size_t>(rank)];
    if (waits_for.empty()) {
      if (stall.rank == kNoRank || moved_at < stall.moved_at) stall = {rank, moved_at, {}};
    } else if (stall.rank == kNoRank) {
      const std::set<int> circle = behind(standings, rank);
      if (!stall.circle.empty() && circle.size() >= stall.circle.size()) continue;
      stall = {kNoRank, 0, {circle.begin(), circle.end()}};
      for (const int each : circle) {
        stall.moved_at = std::max(stall.moved_at, standings[static_cast<std::size_t>(each)].moved_at);
      }
    }
  }
  return stall;
}

}  // namespace netfold::group

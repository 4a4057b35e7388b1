#include "engine/collective/waits.h"

#include <cstddef>

namespace netfold::engine {

Stall find_stall(const std::vector<Standing>& standings, int from) {
  const auto is_rank = [&](int rank) { return rank >= 0 && static_cast<std::size_t>(rank) < standings.size(); };
  std::vector<bool> is_reached(standings.size());
  std::vector<int> open{from};
  Stall stall;
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    if (!is_rank(rank) || is_reached[static_cast<std::size_t>(rank)]) continue;
    is_reached[static_cast<std::size_t>(rank)] = true;
    const auto& [waits_for, moved_at] = standings[static_cast<std::size_t>(rank)];
    open.insert(open.end(), waits_for.begin(), waits_for.end());
    if (!waits_for.empty() || rank == from) continue;
    const bool is_first = stall.rank == kNoRank;
    if (is_first || moved_at < stall.moved_at || (moved_at == stall.moved_at && rank < stall.rank)) {
      stall = {rank, moved_at};
    }
  }
  return stall;
}

}  // namespace netfold::engine

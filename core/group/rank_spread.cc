#include "group/rank_spread.h"

#include <algorithm>
#include <cstddef>

namespace netfold::group {

// With `fair` ranks per core every rank has a place. On each core the lowest ranks stay; the others, in order, take the
// places that are free, in order.
int core_to_leave_for(std::span<const int> cores, int rank, std::span<const int> allowed) {
  const auto own = static_cast<std::size_t>(rank);
  if (allowed.empty() || cores[own] == kUnknownCore) return kUnknownCore;
  const auto on = [&](int core, std::size_t below) { return std::count(cores.begin(), cores.begin() + below, core); };
  const auto fair = static_cast<std::ptrdiff_t>((cores.size() + allowed.size() - 1) / allowed.size());
  const auto is_surplus = [&](std::size_t each) {
    return cores[each] != kUnknownCore && on(cores[each], each) >= fair;
  };
  if (!is_surplus(own)) return kUnknownCore;
  std::ptrdiff_t before_us = 0;
  for (std::size_t each = 0; each < own; ++each) before_us += is_surplus(each);
  for (const int core : allowed) {
    const std::ptrdiff_t free = std::max<std::ptrdiff_t>(0, fair - on(core, cores.size()));
    if (before_us < free) return core;
    before_us -= free;
  }
  return kUnknownCore;
}

}  // namespace netfold::group

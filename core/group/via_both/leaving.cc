#include "group/via_both/leaving.h"

#include <algorithm>
#include <ranges>

namespace netfold::group {

void Leaving::hear(int rank, std::size_t at, std::uint64_t parts) {
  Switch& there = switches_[at];
  there.parts.resize(world_);
  std::uint64_t& said = there.parts[static_cast<std::size_t>(rank)];
  said = std::max(said, parts);
  there.asked = std::max(there.asked, parts);
}

std::optional<std::uint64_t> Leaving::answer(std::size_t at, std::uint64_t parts_over) {
  const auto found = switches_.find(at);
  if (found == switches_.end()) return std::nullopt;
  Switch& there = found->second;
  if (there.asked <= there.answered || there.asked > parts_over) return std::nullopt;
  there.answered = there.asked;
  return there.answered;
}

bool Leaving::have_all(const std::function<bool(int rank)>& has_left) const {
  return std::ranges::all_of(switches_ | std::views::values, [&](const Switch& each) {
    for (int rank = 0; rank < static_cast<int>(world_); ++rank) {
      if (rank != rank_ && each.parts[static_cast<std::size_t>(rank)] < each.asked && !has_left(rank)) return false;
    }
    return true;
  });
}

}  // namespace netfold::group

#include "switch/late_ranks.h"

#include <algorithm>

namespace netfold::switching {
namespace {

constexpr double kMost = 0.75;              // of all chunks
constexpr std::uint64_t kChunksLeast = 16;  // fewer may be chance

}  // namespace

std::map<LateRanks::Job, LateRanks::Place> LateRanks::look(const std::map<Job, std::vector<std::uint64_t>>& came_last) {
  std::map<Job, Place> late;
  for (const auto& [job, counts] : came_last) {
    const auto before = before_.find(job);
    if (before == before_.end() || before->second.size() != counts.size()) continue;
    std::uint64_t all = 0, most = 0;
    Place place = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::uint64_t lately = counts[i] - std::min(counts[i], before->second[i]);
      all += lately;
      if (lately <= most) continue;
      most = lately;
      place = static_cast<Place>(i);
    }
    if (all >= kChunksLeast && static_cast<double>(most) >= kMost * static_cast<double>(all)) late[job] = place;
  }
  before_ = came_last;
  return late;
}

}  // namespace netfold::switching

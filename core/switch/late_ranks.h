// How a switch finds the rank for which its job waits. A rank whose window has shrunk by a loss that no other rank had
// slows down the whole job, and its window grows the more slowly: it grows by results. The rank cannot know it: its
// results come as soon as it contributes. The switch knows whose contributions come last (aggregation/lateness.h).
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace netfold::switching {

class LateRanks {
 public:
  using Job = std::uint64_t;    // JobKey: never used again, unlike job ids
  using Place = std::uint16_t;  // of a contributor

  // Of all jobs that run: how many chunks each contributor was the last for, by place. Of each job in which one was the
  // last for most chunks since the last call: its place.
  std::map<Job, Place> look(const std::map<Job, std::vector<std::uint64_t>>& came_last);

 private:
  std::map<Job, std::vector<std::uint64_t>> before_;
};

}  // namespace netfold::switching

// Ranks of one machine, spread over its cores. The kernel spreads threads by how long they want to run; ranks that give
// their core away while they wait for each other look to it as if they fitted on one. So a rank that finds too many
// ranks on its core leaves it.
#pragma once

#include <span>

namespace netfold::group {

constexpr int kUnknownCore = -1;

// The core that `rank` should go to, or kUnknownCore where it should stay. `cores`: where each rank last was;
// `allowed`: where this rank may run, ascending. Ranks that see the same go to different places.
int core_to_leave_for(std::span<const int> cores, int rank, std::span<const int> allowed);

}  // namespace netfold::group

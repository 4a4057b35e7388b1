// What a collective among ranks must give, bit for bit, by the definition of schedules (schedule/schedule.h) and
// nothing else: every rank's steps over its whole buffer, with the reference kernels. Where the wire rounds:
//   - a rank holds from then on what it has sent, as its peer reads it;
//   - a sum is divided and rounded where the last part of it is added.
// An algorithm that folds in rank order (schedule::folds_in_rank_order) gives what a switch gives (plain_fold.h).
#pragma once

#include <cstddef>
#include <vector>

#include "group/collective_request.h"

namespace netfold::testing {

// inputs[rank] holds what the rank hands in; the results by rank. `order`: of ranks, for hdrm.
std::vector<std::vector<std::byte>> plain_collective(const std::vector<std::vector<std::byte>>& inputs,
                                                     const group::CollectiveRequest& request,
                                                     const std::vector<int>& order);

// The same through a switch.
std::vector<std::vector<std::byte>> plain_in_network(const std::vector<std::vector<std::byte>>& inputs,
                                                     const group::CollectiveRequest& request);

}  // namespace netfold::testing

// Rank mapping for halving-doubling on a BiGraph (eflops.md V-B, Algorithm 1). A BiGraph has an upper and a lower half
// of switches, and a link between every two switches of different halves. The mapping puts the partners of every step
// on different halves, and no two of a step's pairs between the same two switches.
//
// Words. A physical group is the sub-nodes of one switch. A logical group takes one sub-node of each switch: two
// vectors of ranks, one for each half.
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

bool has_odd_ones(int number) {
  return std::popcount(static_cast<unsigned>(number)) % 2 == 1;
}

struct LogicalGroup {
  std::vector<int> upper, lower;  // by switch of that half
};

// Pairs [2i, 2i+1], swapped where i has an odd number of ones, appended to each other.
LogicalGroup base_group(int switches) {
  LogicalGroup base;
  for (int pair = 0; pair < switches / 2; ++pair) {
    const int first = 2 * pair + (has_odd_ones(pair) ? 1 : 0);
    base.upper.push_back(first);
    base.lower.push_back(4 * pair + 1 - first);
  }
  return base;
}

// The base moved up, its halves swapped where `index` has an odd number of ones, and one of them rotated so that the
// same pairs of different groups do not share a link.
LogicalGroup group_at(const LogicalGroup& base, int index, int switches) {
  LogicalGroup group = base;
  if (has_odd_ones(index)) std::swap(group.upper, group.lower);
  for (auto* half : {&group.upper, &group.lower}) {
    for (int& rank : *half) rank += index * switches;
  }
  std::rotate(group.upper.begin(), group.upper.begin() + index % (switches / 2), group.upper.end());
  return group;
}

}  // namespace

Result<std::vector<int>> rank_mapping(int sub_nodes, int switches) {
  if (!is_power_of_two(sub_nodes) || !is_power_of_two(switches) || switches < 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a BiGraph of {} sub-nodes x {} switches has no rank mapping: both must be powers of two, "
                            "with two switches or more",
                            sub_nodes, switches));
  }
  const LogicalGroup base = base_group(switches);
  std::vector<LogicalGroup> groups;
  for (int index = 0; index < sub_nodes; ++index) groups.push_back(group_at(base, index, switches));
  std::vector<int> ranks;
  for (const auto half : {&LogicalGroup::upper, &LogicalGroup::lower}) {
    for (std::size_t at = 0; at < base.upper.size(); ++at) {
      for (const LogicalGroup& group : groups) ranks.push_back((group.*half)[at]);
    }
  }
  return ranks;
}

}  // namespace netfold::schedule

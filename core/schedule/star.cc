// The star: everybody hands the whole tensor to place 0, which folds them in order and hands the sum to all. Two hops
// whatever the team: for very small tensors, where ranks of one machine outnumber its cores and every further hop is a
// wait until each of them has had its turn.
#include "schedule/algorithms.h"

namespace netfold::schedule {

Steps star(const Team& team, int place, std::size_t count) {
  Steps steps;
  const int center = team.ranks.front();
  if (place != 0) {
    add_step(steps, {{Action::kSend, center, 0, count}});
    add_step(steps, {{Action::kStore, center, 0, count}});
    return steps;
  }
  Step down;
  for (int other = 1; other < team.size(); ++other) {
    const int rank = team.ranks[static_cast<std::size_t>(other)];
    add_step(steps, {{Action::kFold, rank, 0, count}});
    down.push_back({Action::kSend, rank, 0, count});
  }
  add_step(steps, down);
  return steps;
}

}  // namespace netfold::schedule

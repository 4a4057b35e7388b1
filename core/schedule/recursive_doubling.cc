// Recursive doubling: partners at distance 1, 2, 4, ... swap all they have and fold it. The fewest steps, but every
// step carries the whole tensor.
#include "schedule/algorithms.h"

namespace netfold::schedule {

Steps recursive_doubling(const Team& team, int place, std::size_t count) {
  Steps steps;
  hand_over(steps, team, place, count);
  const PowerOfTwo inner(team, place);
  if (inner.place) {
    for (int distance = 1; distance < inner.size; distance *= 2) {
      const int partner = team.ranks[static_cast<std::size_t>(inner.place_in_team(*inner.place ^ distance))];
      add_step(steps, {{Action::kSend, partner, 0, count}, {Action::kFold, partner, 0, count}});
    }
  }
  hand_back(steps, team, place, count);
  return steps;
}

// In round k every place signals the one 2^k further and hears from the one 2^k before: after log n rounds it has
// heard, directly or not, from all.
Steps dissemination_barrier(const Team& team, int place) {
  Steps steps;
  const int n = team.size();
  for (int distance = 1; distance < n; distance *= 2) {
    const int to = team.ranks[static_cast<std::size_t>((place + distance) % n)];
    const int from = team.ranks[static_cast<std::size_t>((place - distance + n) % n)];
    steps.push_back({{Action::kSend, to, 0, 0}, {Action::kStore, from, 0, 0}});
  }
  return steps;
}

}  // namespace netfold::schedule

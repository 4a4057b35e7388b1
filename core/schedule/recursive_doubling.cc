// Recursive doubling: partners at distance 1, 2, 4, ... swap all they have and fold it. The fewest steps, but every
// step carries the whole tensor.
#include "schedule/algorithms.h"

namespace netfold::schedule {

Steps recursive_doubling(const PowerOfTwo& inner, std::size_t count) {
  Steps steps;
  hand_over(steps, inner, {{0, count}});
  for (int distance = 1; distance < inner.size() && !inner.is_extra(); distance *= 2) {
    const int partner = inner.rank_at(inner.place() ^ distance);
    add_step(steps, {{Action::kSend, partner, 0, count}, {Action::kFold, partner, 0, count}});
  }
  hand_back(steps, inner, {{0, count}});
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

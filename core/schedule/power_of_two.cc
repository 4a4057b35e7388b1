#include <bit>

#include "schedule/algorithms.h"

namespace netfold::schedule {

PowerOfTwo::PowerOfTwo(const Team& team, int own_place)
    : size(static_cast<int>(std::bit_floor(static_cast<unsigned>(team.size())))), extras(team.size() - size) {
  if (own_place >= 2 * extras) {
    place = own_place - extras;
  } else if (own_place % 2 == 0) {
    place = own_place / 2;
  }
}

void hand_over(Steps& steps, const Team& team, int place, std::size_t count) {
  const PowerOfTwo inner(team, place);
  if (place >= 2 * inner.extras) return;
  const int neighbour = team.ranks[static_cast<std::size_t>(place ^ 1)];
  add_step(steps, {{place % 2 == 0 ? Action::kFold : Action::kSend, neighbour, 0, count}});
}

void hand_back(Steps& steps, const Team& team, int place, std::size_t count) {
  const PowerOfTwo inner(team, place);
  if (place >= 2 * inner.extras) return;
  const int neighbour = team.ranks[static_cast<std::size_t>(place ^ 1)];
  add_step(steps, {{place % 2 == 0 ? Action::kSend : Action::kStore, neighbour, 0, count}});
}

}  // namespace netfold::schedule

// Halving-doubling and Rabenseifner's algorithm: in the reduce-scatter partners split the segment that both still work
// on, send the half they give up and fold the half they keep; the all-gather runs the same swaps backwards. They differ
// in the order of distances: 1, 2, 4, ... or n/2, n/4, ..., 1.
//
// With growing distances a place folds its neighbour first, then the neighbouring pair, then the neighbouring four.
// That is the pairwise order of the in-network fold, so both give the same bits where the world is a power of two.
#include <vector>

#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

Steps swap_halves(const Team& team, int place, std::size_t count, std::size_t align,
                  const std::vector<int>& distances) {
  Steps steps;
  hand_over(steps, team, place, count);
  const PowerOfTwo inner(team, place);
  if (inner.place) {
    struct Swap {
      int partner;
      Segment kept, given;
    };
    std::vector<Swap> swaps;
    Segment segment{0, count};
    for (const int distance : distances) {
      const int partner = *inner.place ^ distance;
      const int half = *inner.place < partner ? 0 : 1;
      swaps.push_back({team.ranks[static_cast<std::size_t>(inner.place_in_team(partner))],
                       part_of(segment, 2, half, align), part_of(segment, 2, 1 - half, align)});
      segment = swaps.back().kept;
    }
    for (const Swap& swap : swaps) {
      add_step(steps, {{Action::kSend, swap.partner, swap.given.offset, swap.given.count},
                       {Action::kFold, swap.partner, swap.kept.offset, swap.kept.count}});
    }
    for (auto swap = swaps.rbegin(); swap != swaps.rend(); ++swap) {
      add_step(steps, {{Action::kSend, swap->partner, swap->kept.offset, swap->kept.count},
                       {Action::kStore, swap->partner, swap->given.offset, swap->given.count}});
    }
  }
  hand_back(steps, team, place, count);
  return steps;
}

}  // namespace

Steps halving_doubling(const Team& team, int place, std::size_t count, std::size_t align) {
  std::vector<int> distances;
  for (int distance = 1; distance < PowerOfTwo(team, place).size; distance *= 2) distances.push_back(distance);
  return swap_halves(team, place, count, align, distances);
}

Steps rabenseifner(const Team& team, int place, std::size_t count, std::size_t align) {
  std::vector<int> distances;
  for (int distance = PowerOfTwo(team, place).size / 2; distance >= 1; distance /= 2) distances.push_back(distance);
  return swap_halves(team, place, count, align, distances);
}

}  // namespace netfold::schedule

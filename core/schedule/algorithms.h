// The algorithms, one file each; schedule.h is how others call them. All take a request whose ranks and counts have
// been checked, and a Team: the ranks that take part, by their place in it.
#pragma once

#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace netfold::schedule {

// Places 0 .. size-1 and the ranks that fill them. Algorithms count in places and name ranks.
struct Team {
  std::vector<int> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  static Team of(int world);
};

Steps ring(Collective collective, const Team& team, int place, int root, std::size_t count, std::size_t align);
Steps direct(Collective collective, const Team& team, int place, int root, std::size_t count, std::size_t align);
Steps halving_doubling(const Team& team, int place, std::size_t count, std::size_t align);
Steps rabenseifner(const Team& team, int place, std::size_t count, std::size_t align);
Steps recursive_doubling(const Team& team, int place, std::size_t count);
Steps binomial_fold(const Team& team, int place, std::size_t count);  // to place 0
Steps binomial_broadcast(const Team& team, int place, int root, std::size_t count);
Steps double_binary_tree(const Team& team, int place, std::size_t count, std::size_t align);
Steps dissemination_barrier(const Team& team, int place);

// Ranks of a BiGraph of `switches` with `sub_nodes` each, in physical order: the switches of the upper half first.
Result<std::vector<int>> rank_mapping(int sub_nodes, int switches);

constexpr bool is_power_of_two(int n) {
  return n > 0 && (n & (n - 1)) == 0;
}

// Algorithms on powers of two serve any team: of the first 2r members (r = size less the largest power of two) every
// odd place hands its elements to its even neighbour before, and gets the result after.
struct PowerOfTwo {
  int size;                  // the largest power of two within the team
  std::optional<int> place;  // of this rank among them; none for a rank that hands over
  int extras;                // r

  PowerOfTwo(const Team& team, int own_place);
  int place_in_team(int inner) const { return inner < extras ? 2 * inner : inner + extras; }
};
void hand_over(Steps& steps, const Team& team, int place, std::size_t count);
void hand_back(Steps& steps, const Team& team, int place, std::size_t count);

// Leaves transfers of no elements out, and steps without transfers.
void add_step(Steps& steps, Step step);

}  // namespace netfold::schedule

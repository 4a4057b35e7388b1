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
  int rank_at(int place) const { return ranks[static_cast<std::size_t>(place)]; }
  static Team of(int world);
};

// Algorithms on powers of two serve any team. The largest power of two has inner places. Every other rank, an extra,
// hands its elements to a rank with an inner place before, and gets the result after.
class PowerOfTwo {
 public:
  // Of the first 2r members (r = size less the largest power of two) every odd place hands over to the even one before.
  PowerOfTwo(const Team& team, int own_place);
  // `ranks`: by inner place. `extras`: as many, the rank that hands over to each; -1: none. Both outlive this.
  PowerOfTwo(const std::vector<int>& ranks, const std::vector<int>& extras, int own_place, bool is_extra);

  int size() const { return size_; }           // inner places
  int place() const { return place_; }         // of this rank, or of the one to which it hands over
  bool is_extra() const { return is_extra_; }  // this rank
  int rank_at(int inner) const;
  std::optional<int> extra_at(int inner) const;

 private:
  const std::vector<int>* ranks_;
  const std::vector<int>* extras_ = nullptr;  // else the first `neighbours_` inner places have their neighbour
  int neighbours_ = 0;
  int size_, place_;
  bool is_extra_;
};
void hand_over(Steps& steps, const PowerOfTwo& inner, const std::vector<Segment>& elements,
               Action action = Action::kFold);
void hand_back(Steps& steps, const PowerOfTwo& inner, const std::vector<Segment>& elements);

Steps ring(Collective collective, const Team& team, int place, int root, std::size_t count, std::size_t align);
Steps direct(Collective collective, const Team& team, int place, int root, std::size_t count, std::size_t align);
Steps halving_doubling(Collective collective, const PowerOfTwo& inner, int world, std::size_t count, std::size_t align);
Steps rabenseifner(const PowerOfTwo& inner, std::size_t count, std::size_t align);
Steps recursive_doubling(const PowerOfTwo& inner, std::size_t count);
Steps binomial_fold(const Team& team, int place, std::size_t count);  // to place 0
Steps binomial_broadcast(const Team& team, int place, int root, std::size_t count);
Steps double_binary_tree(const Team& team, int place, std::size_t count, std::size_t align);
Steps dissemination_barrier(const Team& team, int place);

// Ranks of a BiGraph of `switches` with `sub_nodes` each, in physical order: the switches of the upper half first.
Result<std::vector<int>> rank_mapping(int sub_nodes, int switches);

constexpr bool is_power_of_two(int n) {
  return n > 0 && (n & (n - 1)) == 0;
}

// Leaves transfers of no elements out, and steps without transfers.
void add_step(Steps& steps, Step step);
// A transfer for each segment.
void add_transfers(Step& step, Action action, int peer, const std::vector<Segment>& elements);

}  // namespace netfold::schedule

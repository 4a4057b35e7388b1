// The ring. The buffer is cut into one segment a place. In the reduce-scatter each place passes a segment to its right
// neighbour and folds the one that comes from its left; after n-1 steps it owns the sum of its own segment. In the
// all-gather the sums go round in the same way and are stored.
//
// In a broadcast it is a chain that ends before the root.
//
// Segment k is last folded at place k, so it starts at place k+1: in step s place p sends segment p-1-s and receives
// segment p-2-s (modulo n).
#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

void go_round(Steps& steps, const Team& team, int place, std::size_t count, std::size_t align, Action action,
              int first_segment) {
  const int n = team.size();
  const auto wrap = [n](int index) { return ((index % n) + n) % n; };
  const int right = team.ranks[static_cast<std::size_t>(wrap(place + 1))];
  const int left = team.ranks[static_cast<std::size_t>(wrap(place - 1))];
  for (int step = 0; step < n - 1; ++step) {
    const Segment sent = part_of({0, count}, n, wrap(first_segment - step), align);
    const Segment received = part_of({0, count}, n, wrap(first_segment - step - 1), align);
    add_step(steps, {{Action::kSend, right, sent.offset, sent.count}, {action, left, received.offset, received.count}});
  }
}

// From the root to its right, and on: a rank passes on what it has while the rest still comes.
Steps pass_on(const Team& team, int place, int root, std::size_t count) {
  const int n = team.size();
  const int turned = (place - root + n) % n;  // the root counts as place 0
  const auto rank_at = [&](int index) { return team.ranks[static_cast<std::size_t>((index + root) % n)]; };
  Steps steps;
  if (turned > 0) add_step(steps, {{Action::kStore, rank_at(turned - 1), 0, count}});
  if (turned < n - 1) add_step(steps, {{Action::kSend, rank_at(turned + 1), 0, count}});
  return steps;
}

}  // namespace

Steps ring(Collective collective, const Team& team, int place, int root, std::size_t count, std::size_t align) {
  if (collective == Collective::kBroadcast) return pass_on(team, place, root, count);
  Steps steps;
  if (collective != Collective::kAllGather) go_round(steps, team, place, count, align, Action::kFold, place - 1);
  if (collective != Collective::kReduceScatter) go_round(steps, team, place, count, align, Action::kStore, place);
  return steps;
}

}  // namespace netfold::schedule

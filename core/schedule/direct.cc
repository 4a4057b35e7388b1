// Direct: every place sends each other its segment of the tensor and folds what it gets of its own, all of it at once
// and in rank order; then it sends the sum to all. No element is passed on, so nothing waits for a chain of others; the
// one at distance d is served in step d of either half.
#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

void exchange(Steps& steps, const Team& team, int place, std::size_t count, std::size_t align, Action action) {
  const int n = team.size();
  const auto segment_of = [&](int owner) { return part_of({0, count}, n, owner, align); };
  for (int distance = 1; distance < n; ++distance) {
    const int to = (place + distance) % n, from = (place - distance + n) % n;
    const bool folds = action == Action::kFold;
    const Segment sent = segment_of(folds ? to : place), received = segment_of(folds ? place : from);
    add_step(steps, {{Action::kSend, team.ranks[static_cast<std::size_t>(to)], sent.offset, sent.count},
                     {action, team.ranks[static_cast<std::size_t>(from)], received.offset, received.count}});
  }
}

}  // namespace

Steps direct(Collective collective, const Team& team, int place, std::size_t count, std::size_t align) {
  Steps steps;
  if (collective != Collective::kAllGather) exchange(steps, team, place, count, align, Action::kFold);
  if (collective != Collective::kReduceScatter) exchange(steps, team, place, count, align, Action::kStore);
  return steps;
}

}  // namespace netfold::schedule

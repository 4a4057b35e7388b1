// Direct: every place sends each other its segment of the tensor and folds what it gets of its own, all of it at once
// and in rank order; then it sends the sum to all, or, in a reduce, to the root. No element is passed on, so nothing
// waits for a chain of others; the one at distance d is served in step d of either half.
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

void bring_to(int root, Steps& steps, const Team& team, int place, std::size_t count, std::size_t align) {
  const int n = team.size();
  Step step;
  for (int owner = 0; owner < n; ++owner) {
    const bool sends = owner == place && place != root, stores = owner != place && place == root;
    if (!sends && !stores) continue;
    const Segment segment = part_of({0, count}, n, owner, align);
    const int peer = team.ranks[static_cast<std::size_t>(sends ? root : owner)];
    step.push_back({sends ? Action::kSend : Action::kStore, peer, segment.offset, segment.count});
  }
  add_step(steps, std::move(step));
}

}  // namespace

Steps direct(Collective collective, const Team& team, int place, int root, std::size_t count, std::size_t align) {
  const bool gathers = collective == Collective::kAllReduce || collective == Collective::kAllGather;
  Steps steps;
  if (collective != Collective::kAllGather) exchange(steps, team, place, count, align, Action::kFold);
  if (gathers) exchange(steps, team, place, count, align, Action::kStore);
  if (collective == Collective::kReduce) bring_to(root, steps, team, place, count, align);
  return steps;
}

}  // namespace netfold::schedule

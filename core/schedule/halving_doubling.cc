// Halving-doubling and Rabenseifner's algorithm: in the reduce-scatter partners split the segment that both still work
// on, send the half they give up and fold the half they keep; the all-gather runs the same swaps backwards. They differ
// in the order of distances: 1, 2, 4, ... or n/2, n/4, ..., 1.
//
// With growing distances a place folds its neighbour first, then the neighbouring pair, then the neighbouring four.
// That is the pairwise order of the in-network fold, so both give the same bits where the world is a power of two.
//
// An all-reduce may cut its halves anywhere. A reduce-scatter or an all-gather by itself may not: each rank has its own
// part. There partners swap the parts of all ranks that either of them still stands for.
#include <algorithm>
#include <vector>

#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

Steps swap_halves(const PowerOfTwo& inner, std::size_t count, std::size_t align, const std::vector<int>& distances) {
  Steps steps;
  hand_over(steps, inner, {{0, count}});
  if (!inner.is_extra()) {
    struct Swap {
      int partner;
      Segment kept, given;
    };
    std::vector<Swap> swaps;
    Segment segment{0, count};
    for (const int distance : distances) {
      const int partner = inner.place() ^ distance;
      const int half = inner.place() < partner ? 0 : 1;
      swaps.push_back({inner.rank_at(partner), part_of(segment, 2, half, align), part_of(segment, 2, 1 - half, align)});
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
  hand_back(steps, inner, {{0, count}});
  return steps;
}

class OwnParts {
 public:
  OwnParts(const PowerOfTwo& inner, int world, std::size_t count, std::size_t align)
      : inner_(inner), world_(world), count_(count), align_(align) {}

  Segment of(int rank) const { return part_of({0, count_}, world_, rank, align_); }

  // Of all inner places that are `place` modulo `distance`, and of the ranks that hand over to them: in the order of
  // places in the buffer.
  std::vector<Segment> of_all(int place, int distance) const {
    std::vector<int> ranks;
    for (int each = place & (distance - 1); each < inner_.size(); each += distance) {
      ranks.push_back(inner_.rank_at(each));
      if (const auto extra = inner_.extra_at(each)) ranks.push_back(*extra);
    }
    std::sort(ranks.begin(), ranks.end());
    std::vector<Segment> segments;
    for (const int rank : ranks) segments.push_back(of(rank));
    return segments;
  }

  // Of every rank but `rank`; -1: of all.
  std::vector<Segment> without(int rank) const {
    std::vector<Segment> segments;
    for (int each = 0; each < world_; ++each) {
      if (each != rank) segments.push_back(of(each));
    }
    return segments;
  }

 private:
  const PowerOfTwo& inner_;
  int world_;
  std::size_t count_, align_;
};

void swap_parts(Steps& steps, int partner, const std::vector<Segment>& given, Action action,
                const std::vector<Segment>& taken) {
  Step step;
  add_transfers(step, Action::kSend, partner, given);
  add_transfers(step, action, partner, taken);
  add_step(steps, std::move(step));
}

Steps scatter_parts(const PowerOfTwo& inner, const OwnParts& parts) {
  Steps steps;
  hand_over(steps, inner, parts.without(-1));
  for (int distance = 1; distance < inner.size() && !inner.is_extra(); distance *= 2) {
    const int partner = inner.place() ^ distance;
    swap_parts(steps, inner.rank_at(partner), parts.of_all(partner, 2 * distance), Action::kFold,
               parts.of_all(inner.place(), 2 * distance));
  }
  if (const auto extra = inner.extra_at(inner.place())) hand_back(steps, inner, {parts.of(*extra)});
  return steps;
}

Steps gather_parts(const PowerOfTwo& inner, const OwnParts& parts) {
  Steps steps;
  const auto extra = inner.extra_at(inner.place());
  if (extra) hand_over(steps, inner, {parts.of(*extra)}, Action::kStore);
  for (int distance = inner.size() / 2; distance >= 1 && !inner.is_extra(); distance /= 2) {
    const int partner = inner.place() ^ distance;
    swap_parts(steps, inner.rank_at(partner), parts.of_all(inner.place(), 2 * distance), Action::kStore,
               parts.of_all(partner, 2 * distance));
  }
  if (extra) hand_back(steps, inner, parts.without(*extra));
  return steps;
}

}  // namespace

Steps halving_doubling(Collective collective, const PowerOfTwo& inner, int world, std::size_t count,
                       std::size_t align) {
  const OwnParts parts(inner, world, count, align);
  if (collective == Collective::kReduceScatter) return scatter_parts(inner, parts);
  if (collective == Collective::kAllGather) return gather_parts(inner, parts);
  std::vector<int> distances;
  for (int distance = 1; distance < inner.size(); distance *= 2) distances.push_back(distance);
  return swap_halves(inner, count, align, distances);
}

Steps rabenseifner(const PowerOfTwo& inner, std::size_t count, std::size_t align) {
  std::vector<int> distances;
  for (int distance = inner.size() / 2; distance >= 1; distance /= 2) distances.push_back(distance);
  return swap_halves(inner, count, align, distances);
}

}  // namespace netfold::schedule

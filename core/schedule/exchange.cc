#include "schedule/exchange.h"

#include <numeric>

namespace netfold::schedule {
namespace {

std::size_t sum_of(const std::vector<std::size_t>& counts, std::size_t ranks) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(ranks), std::size_t{0});
}

bool sends(Collective collective, int from, int to, int root) {
  switch (collective) {
    case Collective::kGather: return to == root;
    case Collective::kScatter: return from == root;
    default: return true;
  }
}

}  // namespace

std::size_t Parts::sent() const {
  return sum_of(sends, sends.size());
}

std::size_t Parts::received() const {
  return sum_of(receives, receives.size());
}

Parts equal_parts(Collective collective, int world, int rank, int root, std::size_t count) {
  Parts parts;
  for (int other = 0; other < world; ++other) {
    parts.sends.push_back(sends(collective, rank, other, root) ? count : 0);
    parts.receives.push_back(sends(collective, other, rank, root) ? count : 0);
  }
  return parts;
}

Steps exchange(Collective collective, int rank, int root, const Parts& parts) {
  const int world = static_cast<int>(parts.sends.size());
  const std::size_t behind = parts.sent();
  Steps steps;
  for (int distance = 1; distance < world; ++distance) {
    const int to = (rank + distance) % world, from = (rank - distance + world) % world;
    const auto its = static_cast<std::size_t>(to), own = static_cast<std::size_t>(from);
    Step step;
    if (sends(collective, rank, to, root)) {
      step.push_back({Action::kSend, to, sum_of(parts.sends, its), parts.sends[its]});
    }
    if (sends(collective, from, rank, root)) {
      step.push_back({Action::kStore, from, behind + sum_of(parts.receives, own), parts.receives[own]});
    }
    if (!step.empty()) steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace netfold::schedule

#include "sim/fair_share.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "sim/index.h"

namespace netfold::sim {

FairShare::FairShare(const std::vector<double>& capacities_bit_s) {
  for (const double capacity : capacities_bit_s) resources_.push_back({capacity, {}});
}

void FairShare::add(int flow, std::span<const int> resources) {
  if (index(flow) >= flows_.size()) flows_.resize(index(flow) + 1);
  Flow& added = flows_[index(flow)];
  assert(!added.is_active);
  if (free_blocks_.size() <= resources.size()) free_blocks_.resize(resources.size() + 1);
  auto& blocks = free_blocks_[resources.size()];
  if (blocks.empty()) {
    added.first_use = static_cast<std::uint32_t>(uses_.size());
    uses_.resize(uses_.size() + resources.size());
  } else {
    added.first_use = blocks.back();
    blocks.pop_back();
  }
  added.uses = 0;
  added.is_active = true;
  added.rate = resources.empty() ? std::numeric_limits<double>::infinity() : 0;
  for (const int resource : resources) {
    const auto uses = uses_of(added);
    const auto again = std::find_if(uses.begin(), uses.end(), [&](const Use& use) { return use.resource == resource; });
    if (again != uses.end()) {
      ++again->weight;
      continue;
    }
    Resource& taken = resources_[index(resource)];
    uses_[added.first_use + added.uses] = {resource, 1, static_cast<int>(taken.users.size())};
    taken.users.push_back({flow, static_cast<int>(added.uses)});
    ++added.uses;
    changed_.push_back(resource);
  }
}

void FairShare::remove(int flow) {
  Flow& gone = flows_[index(flow)];
  assert(gone.is_active);
  gone.is_active = false;
  for (const Use& use : uses_of(gone)) {
    auto& users = resources_[index(use.resource)].users;
    const User moved = users.back();
    users[index(use.position)] = moved;
    uses_[flows_[index(moved.flow)].first_use + index(moved.use)].position = use.position;
    users.pop_back();
    changed_.push_back(use.resource);
  }
  free_blocks_[gone.uses].push_back(gone.first_use);
}

void FairShare::solve() {
  touched_.clear();
  if (changed_.empty()) return;
  collect();
  fill();
  changed_.clear();
}

void FairShare::collect() {
  ++mark_;
  reached_.clear();
  const auto reach = [&](int resource) {
    if (resources_[index(resource)].mark == mark_) return;
    resources_[index(resource)].mark = mark_;
    reached_.push_back(resource);
  };
  for (const int resource : changed_) reach(resource);
  for (std::size_t next = 0; next < reached_.size(); ++next) {
    Resource& resource = resources_[index(reached_[next])];
    resource.left = resource.capacity;
    resource.weight = 0;
    for (const User& user : resource.users) {
      Flow& flow = flows_[index(user.flow)];
      resource.weight += uses_[flow.first_use + index(user.use)].weight;
      if (flow.mark == mark_) continue;
      flow.mark = mark_;
      flow.is_frozen = false;
      touched_.push_back(user.flow);
      for (const Use& use : uses_of(flow)) reach(use.resource);
    }
  }
}

void FairShare::fill() {
  heap_.clear();
  for (const int resource : reached_) {
    const Resource& each = resources_[index(resource)];
    if (each.weight > 0) heap_.push_back({each.left / each.weight, resource});
  }
  std::make_heap(heap_.begin(), heap_.end());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Level lowest = heap_.back();
    heap_.pop_back();
    Resource& full = resources_[index(lowest.resource)];
    if (full.weight <= 0) continue;
    const double level = full.left / full.weight;
    if (level > lowest.level) {  // flows froze since it was pushed: it fills up later
      heap_.push_back({level, lowest.resource});
      std::push_heap(heap_.begin(), heap_.end());
      continue;
    }
    for (const User& user : full.users) {
      Flow& flow = flows_[index(user.flow)];
      if (!flow.is_frozen) freeze(flow, level);
    }
  }
}

void FairShare::freeze(Flow& flow, double level) {
  flow.is_frozen = true;
  flow.rate = level;
  for (const Use& use : uses_of(flow)) {
    Resource& resource = resources_[index(use.resource)];
    resource.weight -= use.weight;
    resource.left = std::max(0.0, resource.left - level * use.weight);
  }
}

}  // namespace netfold::sim

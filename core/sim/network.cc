#include "sim/network.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "sim/index.h"

namespace netfold::sim {
namespace {

Result<void> check_placement(const Topology& topology, const Placement& placement) {
  const auto name = [&](int host) { return topology.nodes()[index(topology.hosts()[index(host)])].name; };
  std::vector<int> rank_on(topology.hosts().size(), kNone);
  for (std::size_t rank = 0; rank < placement.hosts.size(); ++rank) {
    const int host = placement.hosts[rank];
    if (host < 0 || index(host) >= topology.hosts().size()) {
      return wrong(fmt::format("rank {} is placed on host {}, and there are {}", rank, host, topology.hosts().size()));
    }
    int& other = rank_on[index(host)];
    if (other != kNone) {
      return wrong(fmt::format("ranks {} and {} are both placed on {}: each host takes one", other, rank, name(host)));
    }
    other = static_cast<int>(rank);
  }
  if (placement.root && (*placement.root < 0 || index(*placement.root) >= topology.nodes().size() ||
                         topology.nodes()[index(*placement.root)].fold_resource == kNone)) {
    return wrong(fmt::format("node {} cannot be the root of a fold in the network: it does not fold", *placement.root));
  }
  return {};
}

}  // namespace

Network::Network(const Topology& topology, Placement placement)
    : topology_(&topology), placement_(std::move(placement)), routing_(topology, placement_.spread, placement_.seed) {}

Result<Network> Network::make(const Topology& topology, int world, Placement placement) {
  if (auto checked = topology.check(); !checked) return tl::unexpected(checked.error());
  if (placement.hosts.empty()) {
    placement.hosts.resize(index(std::min(world, static_cast<int>(topology.hosts().size()))));
    std::iota(placement.hosts.begin(), placement.hosts.end(), 0);
  }
  if (static_cast<int>(placement.hosts.size()) != world) {
    return wrong(fmt::format("{} ranks, and places for {}", world, placement.hosts.size()));
  }
  if (auto checked = check_placement(topology, placement); !checked) return tl::unexpected(checked.error());
  return Network(topology, std::move(placement));
}

std::vector<double> Network::capacities() const {
  std::vector<double> capacities;
  for (const Resource& resource : topology_->resources()) capacities.push_back(resource.capacity_bit_s);
  return capacities;
}

Result<std::vector<int>> Network::links_of(const Workload& workload, int task) {
  const Task& sent = workload.tasks[index(task)];
  const std::uint64_t flow = placement_.rehash ? static_cast<std::uint64_t>(task) + 1 : 0;
  std::vector<int> links;
  auto found =
      routing_.append_path(placement_.hosts[index(sent.sender)], placement_.hosts[index(sent.receiver)], flow, links);
  if (!found) return tl::unexpected(found.error());
  return links;
}

Result<void> Network::path_of(const Workload& workload, int task, Path& path) {
  const Task& sent = workload.tasks[index(task)];
  if (sent.is_in_network) {
    auto tree = fold_tree();
    if (!tree) return tl::unexpected(tree.error());
    path = std::move(tree->path);
    return {};
  }
  const auto links = links_of(workload, task);
  if (!links) return tl::unexpected(links.error());
  for (const int number : *links) {
    const Link& link = topology_->links()[index(number)];
    path.latency_s += link.latency_s;
    if (std::isfinite(topology_->resources()[index(link.resource)].capacity_bit_s)) {
      path.resources.push_back(link.resource);
    }
  }
  const int receiver = topology_->hosts()[index(placement_.hosts[index(sent.receiver)])];
  const int reducer = topology_->nodes()[index(receiver)].fold_resource;
  if (sent.is_folded && reducer != kNone) path.resources.push_back(reducer);
  return {};
}

Result<FoldTree> Network::fold_tree() {
  if (placement_.root) return tree_to(*placement_.root);
  double best = std::numeric_limits<double>::infinity();
  FoldTree chosen;
  for (std::size_t node = 0; node < topology_->nodes().size(); ++node) {
    const Node& candidate = topology_->nodes()[node];
    if (candidate.kind == NodeKind::kHost || candidate.fold_resource == kNone) continue;
    auto tree = tree_to(static_cast<int>(node));
    if (!tree) return tree;
    std::map<int, int> times;
    for (const int resource : tree->path.resources) ++times[resource];
    double slowest = 0;
    for (const auto& [resource, count] : times) {
      slowest = std::max(slowest, count / topology_->resources()[index(resource)].capacity_bit_s);
    }
    if (slowest < best) {
      best = slowest;
      chosen = std::move(*tree);
    }
  }
  if (std::isfinite(best)) return chosen;
  return wrong("no switch of this topology folds: give one a fold rate, or take another algorithm");
}

Result<FoldTree> Network::tree_to(int root) {
  FoldTree made{{{root, {}}}, {}};
  auto& tree = made.ways;
  const auto links = [&](int number) -> const Link& { return topology_->links()[index(number)]; };
  // Grows the tree by the links of `node`'s way to the root.
  const auto grow = [&](int host) -> Result<void> {
    std::vector<int> upward;
    for (int at = host; !tree.contains(at);) {
      const std::vector<int>& ways = routing_.ways_to(at, root);
      if (ways.empty()) {
        return wrong(fmt::format("there is no way from {} to the folding {}", topology_->nodes()[index(host)].name,
                                 topology_->nodes()[index(root)].name));
      }
      upward.push_back(ways.front());
      at = links(ways.front()).to;
    }
    for (auto link = upward.rbegin(); link != upward.rend(); ++link) {
      const int below = links(*link).from, above = links(*link).to;
      const auto& back = topology_->links_from(above);
      const auto down = std::ranges::find_if(back, [&](int each) { return links(each).to == below; });
      if (down == back.end()) {
        return wrong(fmt::format("sums cannot come back from {} to {}: there is no link",
                                 topology_->nodes()[index(above)].name, topology_->nodes()[index(below)].name));
      }
      const FoldTree::Way& parent = tree[above];
      tree[below] = {0, *link, *down, parent.latency_s + links(*link).latency_s + links(*down).latency_s,
                     parent.depth + 1};
    }
    return {};
  };
  for (const int host : placement_.hosts) {
    const int node = topology_->hosts()[index(host)];
    if (auto grown = grow(node); !grown) return tl::unexpected(grown.error());
    tree[node].operands = 1;
  }
  std::vector<std::pair<int, int>> deepest_first;
  for (const auto& [node, way] : tree) deepest_first.push_back({-way.depth, node});
  std::ranges::sort(deepest_first);
  Path& path = made.path;
  const auto take = [&](int resource, int times) {
    if (std::isfinite(topology_->resources()[index(resource)].capacity_bit_s)) {
      path.resources.insert(path.resources.end(), index(times), resource);
    }
  };
  for (const auto& [negative_depth, node] : deepest_first) {
    const FoldTree::Way& way = tree[node];
    const Node& told = topology_->nodes()[index(node)];
    const bool folds = told.kind != NodeKind::kHost && told.fold_resource != kNone;
    if (folds) take(told.fold_resource, way.operands);
    path.latency_s = std::max(path.latency_s, way.latency_s);
    if (way.up == kNone) continue;
    const int sent = folds ? 1 : way.operands;
    tree[links(way.up).to].operands += sent;
    take(links(way.up).resource, sent);
    take(links(way.down).resource, sent);
  }
  return made;
}

Result<FlowResult> Network::simulate(const Workload& workload) {
  return simulate_flows(
      capacities(), workload, [this](const Workload& all, int task, Path& path) { return path_of(all, task, path); },
      goes_on_);
}

}  // namespace netfold::sim

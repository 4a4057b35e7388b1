#include "sim/topology.h"

#include <fmt/core.h>

#include <cassert>
#include <cmath>

#include "sim/index.h"

namespace netfold::sim {

int Topology::add_node(NodeKind kind, std::string name) {
  const int node = static_cast<int>(nodes_.size());
  nodes_.push_back({kind, std::move(name)});
  links_from_.emplace_back();
  links_to_.emplace_back();
  if (kind == NodeKind::kHost) hosts_.push_back(node);
  return node;
}

int Topology::add_resource(double capacity_bit_s, std::string name) {
  resources_.push_back({capacity_bit_s, std::move(name)});
  return static_cast<int>(resources_.size()) - 1;
}

int Topology::add_link_on(int resource, int from, int to, double latency_s, double cost) {
  const int nodes = static_cast<int>(nodes_.size());
  assert(from >= 0 && from < nodes && to >= 0 && to < nodes);
  const int link = static_cast<int>(links_.size());
  links_.push_back({from, to, resource, latency_s, cost});
  links_from_[static_cast<std::size_t>(from)].push_back(link);
  links_to_[static_cast<std::size_t>(to)].push_back(link);
  return link;
}

int Topology::add_link(int from, int to, double capacity_bit_s, double latency_s, double cost) {
  return add_link_on(add_resource(capacity_bit_s, ""), from, to, latency_s, cost);
}

void Topology::add_cable(int one, int other, double capacity_bit_s, double latency_s) {
  add_link(one, other, capacity_bit_s, latency_s);
  add_link(other, one, capacity_bit_s, latency_s);
}

void Topology::set_fold_rate(int node, double bit_s) {
  Node& folding = nodes_[static_cast<std::size_t>(node)];
  folding.fold_resource = add_resource(bit_s, folding.name + " folding");
}

void Topology::set_path(int from_host, int to_host, std::vector<int> links) {
  if (links.empty()) {
    paths_.erase({from_host, to_host});
  } else {
    paths_[{from_host, to_host}] = std::move(links);
  }
}

const std::vector<int>* Topology::path_set(int from_host, int to_host) const {
  if (paths_.empty()) return nullptr;
  const auto found = paths_.find({from_host, to_host});
  return found == paths_.end() ? nullptr : &found->second;
}

std::string Topology::name_of_resource(int resource) const {
  const Resource& wanted = resources_[static_cast<std::size_t>(resource)];
  if (!wanted.name.empty()) return wanted.name;
  for (const Link& link : links_) {
    if (link.resource != resource) continue;
    return fmt::format("{} -> {}", nodes_[static_cast<std::size_t>(link.from)].name,
                       nodes_[static_cast<std::size_t>(link.to)].name);
  }
  return fmt::format("resource {}", resource);
}

Result<void> Topology::check() const {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInvalidArgument, std::move(what)); };
  if (hosts_.empty()) return wrong("a topology without a host: no host could send");
  for (std::size_t i = 0; i < resources_.size(); ++i) {
    const double capacity = resources_[i].capacity_bit_s;
    if (!(capacity > 0)) {
      return wrong(
          fmt::format("{} has a rate of {} bit/s: a rate is above 0", name_of_resource(static_cast<int>(i)), capacity));
    }
  }
  for (const Link& link : links_) {
    if (link.resource < 0 || link.resource >= static_cast<int>(resources_.size())) {
      return wrong(fmt::format("a link is on resource {}, and there are {}", link.resource, resources_.size()));
    }
    const auto name = [&] { return name_of_resource(link.resource); };
    if (link.from == link.to) return wrong(fmt::format("{}: a link leads to another node", name()));
    if (!(link.latency_s >= 0) || !std::isfinite(link.latency_s)) {
      return wrong(fmt::format("{} has a latency of {} s: it is 0 or more", name(), link.latency_s));
    }
    if (!(link.cost > 0) || !std::isfinite(link.cost)) {
      return wrong(fmt::format("{} has a cost of {}: it is above 0", name(), link.cost));
    }
  }
  for (const auto& [ends, links] : paths_) {
    int at = hosts_[static_cast<std::size_t>(ends.first)];
    for (const int link : links) {
      if (links_[static_cast<std::size_t>(link)].from != at) {
        return wrong(fmt::format("the path from host {} to {}: link {} does not begin at {}", ends.first, ends.second,
                                 link, nodes_[static_cast<std::size_t>(at)].name));
      }
      at = links_[static_cast<std::size_t>(link)].to;
    }
    if (at != hosts_[static_cast<std::size_t>(ends.second)]) {
      return wrong(fmt::format("the path from host {} to {} ends at {}", ends.first, ends.second,
                               nodes_[static_cast<std::size_t>(at)].name));
    }
  }
  return {};
}

int Topology::switch_of(int host_node) const {
  std::vector<bool> seen(nodes_.size());
  std::vector<int> near{host_node};  // grows as it is read: breadth first
  for (std::size_t at = 0; at < near.size(); ++at) {
    for (const int link : links_from(near[at])) {
      const int other = links_[index(link)].to;
      const NodeKind kind = nodes_[index(other)].kind;
      if (kind == NodeKind::kSwitch) return other;
      if (kind == NodeKind::kHost || seen[index(other)]) continue;
      seen[index(other)] = true;
      near.push_back(other);
    }
  }
  return kNone;
}

}  // namespace netfold::sim

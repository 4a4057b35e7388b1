#include "sim/routing.h"

#include <fmt/core.h>

#include <functional>
#include <limits>
#include <queue>

#include "base/prng.h"
#include "sim/index.h"

namespace netfold::sim {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr double kSameCost = 1e-9;  // costs that are sums of the same parts in another order

}  // namespace

Routing::Routing(const Topology& topology, Spread spread, std::uint64_t seed)
    : topology_(topology), spread_(spread), seed_(seed) {
  // A host with a single cable is reached over its switch: distances are kept by switch, not by host.
  for (const int host : topology.hosts()) {
    const auto& in = topology.links_to(host);
    const int before = in.size() == 1 ? topology.links()[index(in.front())].from : kNone;
    const bool has_switch = before != kNone && topology.nodes()[index(before)].kind != NodeKind::kHost;
    goals_.push_back(has_switch ? Goal{before, in.front()} : Goal{host, kNone});
  }
  std::vector<int> ordinal(topology.nodes().size(), kNone);
  int next = 0;
  for (std::size_t node = 0; node < topology.nodes().size(); ++node) {
    if (topology.nodes()[node].kind == NodeKind::kSwitch) ordinal[node] = next++;
  }
  for (std::size_t host = 0; host < topology.hosts().size(); ++host) {
    const int attached = topology.switch_of(topology.hosts()[host]);
    number_.push_back(attached == kNone ? static_cast<int>(host) : ordinal[index(attached)]);
  }
}

const std::vector<double>& Routing::distances_to(int node) {
  auto [found, is_new] = distances_.try_emplace(node);
  if (!is_new) return found->second;
  std::vector<double>& distance = found->second;
  distance.assign(topology_.nodes().size(), kFar);
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  distance[index(node)] = 0;
  open.push({0, node});
  while (!open.empty()) {
    const auto [so_far, at] = open.top();
    open.pop();
    const bool forwards = at == node || topology_.nodes()[index(at)].kind != NodeKind::kHost;
    if (so_far > distance[index(at)] || !forwards) continue;
    for (const int link : topology_.links_to(at)) {
      const Link& way = topology_.links()[index(link)];
      const double further = so_far + way.cost;
      if (further < distance[index(way.from)]) {
        distance[index(way.from)] = further;
        if (topology_.nodes()[index(way.from)].kind != NodeKind::kHost) open.push({further, way.from});
      }
    }
  }
  return distance;
}

const std::vector<int>& Routing::ways_to(int node, int goal) {
  const std::uint64_t key = index(node) * topology_.nodes().size() + index(goal);
  auto [found, is_new] = ways_.try_emplace(key);
  if (!is_new) return found->second;
  const std::vector<double>& distance = distances_to(goal);
  for (const int link : topology_.links_from(node)) {
    const Link& way = topology_.links()[index(link)];
    const bool forwards = way.to == goal || topology_.nodes()[index(way.to)].kind != NodeKind::kHost;
    const double gap = distance[index(way.to)] + way.cost - distance[index(node)];
    if (forwards && gap <= kSameCost * distance[index(node)]) found->second.push_back(link);
  }
  return found->second;
}

std::span<const int> Routing::next_links(int node, int host) {
  const Goal goal = goals_[index(host)];
  const bool is_last = node == goal.node && goal.last_link != kNone;
  const auto& all = ways_to(node, is_last ? topology_.hosts()[index(host)] : goal.node);
  if (spread_ == Spread::kHash || all.size() < 2) return all;
  return std::span(all).subspan(by_destination(all, host), 1);
}

std::size_t Routing::by_destination(const std::vector<int>& links, int to_host) const {
  return index(number_[index(to_host)]) % links.size();
}

int Routing::pick(const std::vector<int>& links, int node, int from_host, int to_host, std::uint64_t flow) {
  if (links.size() == 1) return links.front();
  if (spread_ == Spread::kDestination) return links[by_destination(links, to_host)];
  has_hashed_ = true;
  Prng hash(seed_ ^ (index(node) << 42));
  for (const std::uint64_t word : {index(from_host), index(to_host), std::size_t{flow}})
    hash = Prng(hash.next() ^ word);
  return links[hash.below(links.size())];
}

Result<void> Routing::append_path(int from_host, int to_host, std::uint64_t flow, std::vector<int>& links) {
  if (const auto* fixed = topology_.path_set(from_host, to_host)) {
    links.insert(links.end(), fixed->begin(), fixed->end());
    return {};
  }
  const Goal goal = goals_[index(to_host)];
  int at = topology_.hosts()[index(from_host)];
  if (at == topology_.hosts()[index(to_host)]) return {};
  while (at != goal.node) {
    const std::vector<int>& next = ways_to(at, goal.node);
    if (next.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("there is no way from {} to {}: connect them, or leave one out",
                              topology_.nodes()[index(topology_.hosts()[index(from_host)])].name,
                              topology_.nodes()[index(topology_.hosts()[index(to_host)])].name));
    }
    const int link = pick(next, at, from_host, to_host, flow);
    links.push_back(link);
    at = topology_.links()[index(link)].to;
  }
  if (goal.last_link != kNone) links.push_back(goal.last_link);
  return {};
}

}  // namespace netfold::sim

#include "sim/builders.h"

#include <fmt/core.h>

#include <bit>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace netfold::sim {
namespace {

using Count = std::pair<std::string_view, int>;

Result<void> check(std::string_view shape, std::initializer_list<Count> counts, Cable cable) {
  const auto wrong = [&](std::string what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("no {} {}", shape, what));
  };
  for (const auto& [what, count] : counts) {
    if (count < 1) return wrong(fmt::format("has {} {}: 1 or more", count, what));
  }
  if (!(cable.rate_bit_s > 0)) return wrong(fmt::format("has cables of {} bit/s: above 0", cable.rate_bit_s));
  if (!(cable.latency_s >= 0)) return wrong(fmt::format("has a latency of {} s: 0 or more", cable.latency_s));
  return {};
}

// Adds `count` hosts at each of the switches from `first` to `past`.
void plug_in(Topology& topology, int first, int past, int count, Cable cable) {
  int number = 0;
  for (int at = first; at < past; ++at) {
    for (int i = 0; i < count; ++i) {
      const int host = topology.add_node(NodeKind::kHost, fmt::format("host {}", number++));
      topology.add_cable(host, at, cable.rate_bit_s, cable.latency_s);
    }
  }
}

void add_switches(Topology& topology, std::string_view name, int count) {
  for (int i = 0; i < count; ++i) topology.add_node(NodeKind::kSwitch, fmt::format("{} {}", name, i));
}

void cable_all(Topology& topology, int uppers, int lowers, Cable cable) {
  for (int upper = 0; upper < uppers; ++upper) {
    for (int lower = uppers; lower < uppers + lowers; ++lower) {
      topology.add_cable(upper, lower, cable.rate_bit_s, cable.latency_s);
    }
  }
}

Result<void> check_bigraph(std::string_view shape, int sub_nodes, int switches, Cable cable) {
  const auto is_power = [](int n) { return n > 0 && std::has_single_bit(static_cast<unsigned>(n)); };
  if (!is_power(sub_nodes) || !is_power(switches) || switches < 2) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no {} has {} sub-nodes x {} switches: both are powers of two, with two switches or more",
                            shape, sub_nodes, switches));
  }
  if (sub_nodes > switches / 2) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("no {0} has {1} sub-nodes x {2} switches: a switch has {3} cables to the other half, one for "
                    "each of at most {3} sub-nodes",
                    shape, sub_nodes, switches, switches / 2));
  }
  return check(shape, {}, cable);
}

}  // namespace

Result<Topology> bigraph(int sub_nodes, int switches, Cable cable) {
  if (auto fits = check_bigraph("BiGraph", sub_nodes, switches, cable); !fits) return tl::unexpected(fits.error());
  Topology topology;
  add_switches(topology, "upper", switches / 2);
  add_switches(topology, "lower", switches / 2);
  cable_all(topology, switches / 2, switches / 2, cable);
  plug_in(topology, 0, switches, sub_nodes, cable);
  return topology;
}

Result<Topology> leaf_spine(int leaves, int spines, int hosts_per_leaf, Cable cable) {
  const auto fits =
      check("leaf-spine", {{"leaves", leaves}, {"spines", spines}, {"hosts a leaf", hosts_per_leaf}}, cable);
  if (!fits) return tl::unexpected(fits.error());
  Topology topology;
  add_switches(topology, "spine", spines);
  add_switches(topology, "leaf", leaves);
  cable_all(topology, spines, leaves, cable);
  plug_in(topology, spines, spines + leaves, hosts_per_leaf, cable);
  return topology;
}

Result<Topology> fat_tree(int sub_nodes, int switches, Cable cable) {
  if (auto fits = check_bigraph("fat tree", sub_nodes, switches, cable); !fits) return tl::unexpected(fits.error());
  return leaf_spine(switches / 2, switches / 2, 2 * sub_nodes, cable);
}

Result<Topology> torus(int rows, int columns, int hosts, Cable cable) {
  const auto fits = check("torus", {{"rows", rows}, {"columns", columns}, {"hosts a switch", hosts}}, cable);
  if (!fits) return tl::unexpected(fits.error());
  Topology topology;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      topology.add_node(NodeKind::kSwitch, fmt::format("switch {},{}", row, column));
    }
  }
  // A side of two has one cable, not one each way round.
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const int here = row * columns + column;
      const int right = row * columns + (column + 1) % columns, below = (row + 1) % rows * columns + column;
      if (columns > 2 || column + 1 < columns) topology.add_cable(here, right, cable.rate_bit_s, cable.latency_s);
      if (rows > 2 || row + 1 < rows) topology.add_cable(here, below, cable.rate_bit_s, cable.latency_s);
    }
  }
  plug_in(topology, 0, rows * columns, hosts, cable);
  return topology;
}

Result<Topology> dragonfly(int groups, int routers, int hosts, Cable cable) {
  const auto fits = check("dragonfly", {{"groups", groups}, {"routers", routers}, {"hosts a router", hosts}}, cable);
  if (!fits) return tl::unexpected(fits.error());
  Topology topology;
  for (int group = 0; group < groups; ++group) {
    for (int router = 0; router < routers; ++router) {
      topology.add_node(NodeKind::kSwitch, fmt::format("router {},{}", group, router));
    }
  }
  const auto at = [routers](int group, int router) { return group * routers + router; };
  for (int group = 0; group < groups; ++group) {
    for (int one = 0; one < routers; ++one) {
      for (int other = one + 1; other < routers; ++other) {
        topology.add_cable(at(group, one), at(group, other), cable.rate_bit_s, cable.latency_s);
      }
    }
  }
  // Of a group's cables to others, the i-th is at router i, round the routers.
  for (int one = 0; one < groups; ++one) {
    for (int other = one + 1; other < groups; ++other) {
      topology.add_cable(at(one, (other - 1) % routers), at(other, one % routers), cable.rate_bit_s, cable.latency_s);
    }
  }
  plug_in(topology, 0, groups * routers, hosts, cable);
  return topology;
}

Result<Topology> star(int hosts, Cable cable) {
  if (auto fits = check("star", {{"hosts", hosts}}, cable); !fits) return tl::unexpected(fits.error());
  Topology topology;
  add_switches(topology, "switch", 1);
  plug_in(topology, 0, 1, hosts, cable);
  return topology;
}

}  // namespace netfold::sim

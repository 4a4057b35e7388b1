// Topologies that have a name. Hosts are called host 0, host 1, ...; switches as people call them. Every cable has the
// same rate and latency, each way.
#pragma once

#include "base/result.h"
#include "sim/topology.h"

namespace netfold::sim {

struct Cable {
  double rate_bit_s;
  double latency_s = 0;
};

// `switches` in two halves, a cable between every two of different halves, `sub_nodes` hosts at each (eflops.md IV-B).
// Both are powers of two; sub_nodes <= switches / 2.
Result<Topology> bigraph(int sub_nodes, int switches, Cable cable);

// Two layers: a cable from every leaf to every spine; hosts at the leaves. Cables to a spine are as the hosts' own,
// so a leaf is oversubscribed hosts_per_leaf : spines.
Result<Topology> leaf_spine(int leaves, int spines, int hosts_per_leaf, Cable cable);

// The switches and cables of a BiGraph, with all hosts at the lower half, twice as many at each.
Result<Topology> fat_tree(int sub_nodes, int switches, Cable cable);

// Switches in `rows` x `columns`, cabled to their four neighbours round the edges, `hosts` at each.
Result<Topology> torus(int rows, int columns, int hosts, Cable cable);

// `groups` of `routers` that are all cabled to each other; every two groups share a cable, spread over their routers;
// `hosts` at each router.
Result<Topology> dragonfly(int groups, int routers, int hosts, Cable cable);

// One switch and its hosts.
Result<Topology> star(int hosts, Cable cable);

}  // namespace netfold::sim

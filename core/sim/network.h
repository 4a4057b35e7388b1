// Workers on a topology: which resources a transfer between two of them takes, and the simulation of a workload there.
//
// A fold in the network is a tree: the links by which workers reach its root. A switch that folds sends one operand up,
// whatever came in; one that does not passes all of them on. Sums come down the same way, from every switch that folds
// one to each below. All workers' elements move together, so it is one flow that takes a link as many times as operands
// cross it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "sim/flow_simulator.h"
#include "sim/routing.h"
#include "sim/topology.h"

namespace netfold::sim {

struct Placement {
  std::vector<int> hosts;  // by rank; empty: rank r is on host r
  Spread spread = Spread::kHash;
  bool rehash = false;  // each transfer is hashed by itself, not with all others of its connection
  std::uint64_t seed = 0;
  std::optional<int> root = {};  // node at which a fold in the network ends; none: the best one
};

class Network {
 public:
  // kInvalidArgument: the topology is wrong, too small, or a host has two ranks.
  static Result<Network> make(const Topology& topology, int world, Placement placement);

  void set_seed(std::uint64_t seed) { routing_.set_seed(seed); }
  std::vector<double> capacities() const;
  Result<void> path_of(const Workload& workload, int task, Path& path);
  Result<FlowResult> simulate(const Workload& workload);

 private:
  Network(const Topology& topology, Placement placement);
  Result<void> fold_tree(Path& path);
  Result<Path> tree_to(int root);

  const Topology* topology_;
  Placement placement_;
  Routing routing_;
  std::vector<int> links_;
};

}  // namespace netfold::sim

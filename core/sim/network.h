// Workers on a topology: which resources a transfer between two of them takes, and the simulation of a workload there.
//
// A fold in the network is a tree: the links by which workers reach its root. A switch that folds sends one operand up,
// whatever came in; one that does not passes all of them on. Sums come down the same way, from every switch that folds
// one to each below. All workers' elements move together, so it is one flow that takes a link as many times as operands
// cross it.
#pragma once

#include <cstdint>
#include <map>
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

// How a fold in the network goes: of each node of the tree, the links to its parent and back.
struct FoldTree {
  struct Way {
    int operands = 0;              // that reach the node from below
    int up = kNone, down = kNone;  // kNone: the root
    double latency_s = 0;          // to the root and back
    int depth = 0;
  };
  std::map<int, Way> ways;  // by node
  Path path;                // of the one flow that it is
};

class Network {
 public:
  // kInvalidArgument: the topology is wrong, too small, or a host has two ranks.
  static Result<Network> make(const Topology& topology, int world, Placement placement);

  void set_goes_on(GoesOn goes_on) { goes_on_ = std::move(goes_on); }
  const GoesOn& goes_on() const { return goes_on_; }
  void set_seed(std::uint64_t seed) { routing_.set_seed(seed); }
  std::vector<double> capacities() const;
  Result<void> path_of(const Workload& workload, int task, Path& path);
  // The links of a transfer, in order.
  Result<std::vector<int>> links_of(const Workload& workload, int task);
  // To the root that was asked for, or the one that takes the least time.
  Result<FoldTree> fold_tree();
  const Topology& topology() const { return *topology_; }
  const Placement& placement() const { return placement_; }
  Routing& routing() { return routing_; }
  Result<FlowResult> simulate(const Workload& workload);

 private:
  Network(const Topology& topology, Placement placement);
  Result<FoldTree> tree_to(int root);

  const Topology* topology_;
  Placement placement_;
  Routing routing_;
  GoesOn goes_on_;
};

}  // namespace netfold::sim

// Routes: which links a packet takes from one host to another. Always a way of least cost (hops, unless links say
// otherwise); where there are several, a rule chooses at each node:
//   kHash         by a hash of the flow and the node, as switches spread connections (ECMP); another seed, other
//   choices kDestination  by the number of the switch that the destination is plugged into, so that nothing is left to
//   chance:
//                 what BiGraph does within a half (eflops.md IV-B)
//
// Hosts forward nothing. Distances are computed when a destination is first asked for, and kept.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sim/topology.h"

namespace netfold::sim {

enum class Spread : std::uint8_t { kHash, kDestination };

class Routing {
 public:
  Routing(const Topology& topology, Spread spread, std::uint64_t seed = 0);

  // Appends the links from one host to another. `flow` tells the connections between two hosts apart. kInvalidArgument
  // where there is no way; the error names both hosts.
  Result<void> append_path(int from_host, int to_host, std::uint64_t flow, std::vector<int>& links);

  // The links by which `node` may forward what goes to `host`; more than one where a hash chooses.
  std::span<const int> next_links(int node, int host);

  // The same for any node that is gone to.
  const std::vector<int>& ways_to(int node, int goal);

  void set_seed(std::uint64_t seed) { seed_ = seed; }
  bool has_hashed() const { return has_hashed_; }  // another seed may give other routes

 private:
  struct Goal {  // the node that paths to a host are looked up for, and the links from there to it
    int node;
    int last_link;  // kNone: the node is the host
  };

  const std::vector<double>& distances_to(int node);
  std::size_t by_destination(const std::vector<int>& links, int to_host) const;
  int pick(const std::vector<int>& links, int node, int from_host, int to_host, std::uint64_t flow);

  const Topology& topology_;
  Spread spread_;
  std::uint64_t seed_;
  bool has_hashed_ = false;
  std::vector<Goal> goals_;  // by host
  std::vector<int> number_;  // by host: of its switch among the switches; of the host itself where it has no switch
  std::unordered_map<int, std::vector<double>> distances_;
  std::unordered_map<std::uint64_t, std::vector<int>> ways_;
};

}  // namespace netfold::sim

// Can a lossless network deadlock? Proved or refuted for a topology and its routes (Dally and Seitz 1987).
//
// Words. A *channel* is a link at one priority: the buffer at its far end, which is paused as a whole. A packet that
// sits in one waits for the next channel of its route: that is a *dependency*. Where dependencies form no cycle, the
// channels can be numbered so that each waits for higher numbers only, and the highest always drain: no deadlock,
// whatever the load. Where they form a cycle, packets can fill it so that each waits for the next (eflops.md, Fig. 7).
//
// Every route that a rule may choose counts, from every host to every other, unless flows are named.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/routing.h"
#include "sim/topology.h"

namespace netfold::sim {

// Which priority a packet has on a link. Those of `count`, 0 and up.
struct Priorities {
  int count = 1;
  bool by_hop = false;       // one more at each cable between switches, up to the last
  std::vector<int> of_host;  // else that of the sender; empty: 0

  int of(int host, int hop) const;
};

struct Channel {
  int link;
  int priority;

  bool operator==(const Channel&) const = default;
};

// One channel of a cycle, and a flow whose packets may hold it and wait for the next.
struct Held {
  Channel channel;
  int from_host, to_host;
};

struct DeadlockCheck {
  std::size_t channels = 0, dependencies = 0;
  std::vector<Held> cycle;  // empty: there is no cycle, and this is the proof
};

// `flows`: pairs of hosts; empty: all.
Result<DeadlockCheck> check_deadlock(const Topology& topology, Spread spread, const Priorities& priorities,
                                     const std::vector<std::pair<int, int>>& flows = {});

// The priorities by which a BiGraph's halves are kept apart (eflops.md IV-B): 0 for hosts plugged into a switch of its
// upper half, 1 for the others. The halves are found by colouring; kInvalidArgument where switches form no two halves.
Result<Priorities> by_half(const Topology& topology);

}  // namespace netfold::sim

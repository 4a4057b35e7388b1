// Packets in virtual time, for small worlds: what the flow simulator leaves out.
//
// Words. Every link has a *port* at its near end, with a queue a priority, and a *buffer* a priority at its far end. A
// packet is in that buffer from its arrival until it has left over the next link of its route. A buffer that is filled
// to `pause_bytes` pauses its priority at the port that fills it, and lets it go on at `resume_bytes` (PFC, IEEE
// 802.1Qbb); packets in flight need headroom above. Hosts take all that comes.
//
// A switch sends a packet on when it has all of it (store-and-forward) or its header (cut-through). A port serves its
// priorities in turn, and within one either its flows in turn, which is what max-min fairness assumes, or packets as
// they came, as most switches do.
//
// A fold in the network goes up a tree of folding switches and down again (network.h), a packet of each worker into a
// slot. A worker has packets of `slots` slots on their way, no more.
//
// Nothing happens by time-outs: if packets are left and no event is, they wait for each other. That is the deadlock,
// and the result says which links they wait for.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sim/deadlock.h"
#include "sim/network.h"
#include "sim/workload.h"

namespace netfold::sim {

struct PacketSettings {
  double packet_bytes = 4096;
  double header_bytes = 64;  // cut-through sends on after them
  bool cut_through = false;
  bool fair_queues = true;     // flows in turn; else as they came
  double pause_bytes = 100e3;  // of a buffer of one priority of one link
  double resume_bytes = 80e3;
  Priorities priorities;
  int slots = 256;
  std::size_t packets_max = 100'000'000;  // of the whole run: a bound on what a question may cost
};

struct PacketResult {
  double time_s = 0;
  std::vector<double> start_s, end_s;  // by task; NaN: never
  std::size_t packets = 0, pauses = 0;
  double buffer_max_bytes = 0;  // that any one buffer held
  bool is_deadlocked = false;
  std::vector<Held> waiting;  // if deadlocked: a circle of channels, each with a flow that is stuck in it
};

// kInvalidArgument where settings make no sense, or links share a resource.
Result<PacketResult> simulate_packets(Network& network, const Workload& workload, const PacketSettings& settings);

}  // namespace netfold::sim

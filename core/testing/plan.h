// What a seed draws: a cluster, its jobs, and everything that goes wrong, with the time of each. The same seed and the
// same wishes give the same plan on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "group/collective_request.h"
#include "numbers/format.h"
#include "testing/network.h"

namespace netfold::testing {

// What a person asks for, to make a failing cluster smaller. Everything else stays as the seed draws it.
struct Wishes {
  std::optional<int> world, jobs, shards, lives;
  std::set<std::string> without;  // of fault_names()
};
std::vector<std::string> fault_names();

struct TensorPlan {
  group::CollectiveRequest request;  // without memory
  bool is_in_place;
};

struct JobPlan {
  std::string name;
  std::uint16_t world = 1;
  std::vector<TensorPlan> tensors;  // of each life, in order
  std::size_t in_flight = 1;        // collectives that a rank submits before it waits
  Nanoseconds compute_max = 0;      // before a rank submits the next ones
  int lives = 1;                    // how often it is started while there are faults
  double timeout_s = 5;
  std::uint32_t window = 0, mtu = 1500;
  numbers::BfpShape bfp = {};
  bool keeps_its_ports = true;  // a rank started again has its former UDP port
  // Of ranks among themselves, without the switch.
  bool is_among_peers = false;
  StreamShape stream = {};
  std::vector<int> order = {};   // of ranks, for hdrm
  bool drives_in_waits = false;  // no progress thread: while a rank computes, nobody drives its session
};

enum class FaultKind {
  kPauseWorker,
  kPauseSwitch,
  kStall,  // a rank computes for long; its heartbeats go on
  kKillWorker,
  kKillSwitch,
  kPowerWorker,  // its machine goes off
  kPowerSwitch,
  kStopSwitch,  // in order, as by SIGTERM
  kPartition,   // between a worker and the switch
  kPartitionOneWay,
  kCut,       // a worker's control connection
  kIntruder,  // a worker with a wrong secret
  kStranger,  // connects, and says nothing or rubbish
  // Among ranks alone.
  kPartPeers,   // a partition between two ranks, both ways or one
  kCutLine,     // the life line between two ranks
  kCutStream,   // the data between two ranks
  kSlow,        // all streams of a rank; nobody may take that for a failure
  kDisagree,    // a rank submits something else than the others
  kLeaveEarly,  // a rank leaves before it has submitted everything
  kGiveUp,      // a rank leaves, and says why
  kCount,
};
const char* name_of(FaultKind kind);

struct FaultPlan {
  Nanoseconds at = 0;  // from the start
  FaultKind kind = FaultKind::kPauseWorker;
  std::size_t job = 0;
  std::uint16_t rank = 0;
  Nanoseconds lasts = 0;  // a pause, a partition, or until it is started again
  bool is_outward = false;
  std::uint16_t other = 0;   // the second rank, where there are two
  std::uint64_t detail = 0;  // what a rank disagrees about, how slow a stream is
};

struct Plan {
  std::uint64_t seed = 0;
  std::uint16_t shards = 1;
  double heartbeat_s = 1;
  std::string secret;
  bool require_auth = false;
  bool repeats_salts = false;  // the switch draws the same salt for each epoch: only the epoch tells lives apart
  Weather weather;
  std::vector<JobPlan> jobs;
  std::vector<FaultPlan> faults;
  Nanoseconds calm_at = 0;  // from here on nothing goes wrong
};

Plan draw_plan(std::uint64_t seed, const Wishes& wishes);
std::string to_string(const Plan& plan);  // a line or two for people

}  // namespace netfold::testing

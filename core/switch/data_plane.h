// The switch's packet path: one thread a shard, each with its own UDP socket and the slots it owns. Control code admits
// and evicts jobs; a shard learns of it through a mailbox that costs one relaxed load a batch when it is empty.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "link/link.h"
#include "switch/aggregation/lateness.h"
#include "switch/aggregation/tree.h"
#include "wire/lease.h"

namespace netfold::switching {

enum class DropReason : std::uint8_t {
  kShort,
  kVersion,
  kKind,
  kFormat,
  kFlags,
  kLength,  // wire::ParseError, in its order
  kUnknownJob,
  kStaleEpoch,
  kUnknownWorker,
  kStranger,
  kBadTag,
  kBadSlot,
  kMalformedBlock,
  kStaleChunk,
  kDuplicate,
  kMismatch,
  kNoRoom,
  kCount,
};
const char* name_of(DropReason reason);

struct JobCounters {
  std::uint64_t contributions = 0, folded_chunks = 0, results_sent = 0, results_resent = 0, missing_sent = 0,
                probes = 0, received_bytes = 0, sent_bytes = 0, duplicates = 0, stale = 0, signals = 0;
  // To the switch above and from it; not counted among the others.
  std::uint64_t up_sums = 0, up_resent = 0, up_sent_bytes = 0, up_received_bytes = 0;
  std::vector<RankCounters> ranks;  // by place

  JobCounters& operator+=(const JobCounters& other);
};

// The work of a thread so far.
struct ThreadUse {
  std::string name;
  double cpu_s = 0;
  std::optional<link::LinkStats> link;  // of a thread with a link of its own
};

struct DataPlaneOptions {
  link::Address bind = {0, 0};   // ip of the shards' sockets; ports are chosen by the kernel unless `first_port`
  std::uint16_t first_port = 0;  // shard t gets first_port + t
  std::uint16_t shards = 1;      // a power of two
  std::vector<int> cores;        // shard t is pinned to cores[t]; empty: not pinned
  std::uint16_t jobs_max = 64;
  std::uint8_t dscp = 0;  // of every packet that the switch sends (link/road.h)
  std::string pcap_path;  // "" : no capture; shard t appends ".t"
};

struct Admission {
  wire::Lease lease;
  std::vector<link::Address> workers;  // by rank: where its datagrams come from and go to
  std::optional<link::Address> host;   // who is told when tensors are folded
  Tree tree = {};                      // in a tree of switches: `workers` are by place

  // Whose packet this is, by place; nothing if no worker of this job sends such packets.
  std::optional<std::uint16_t> place_of(const wire::Header& header) const {
    if (header.kind == wire::Kind::kAwait) {
      return header.worker == wire::kSwitchWorker && host ? std::optional(header.worker) : std::nullopt;
    }
    const auto place = tree.contributors.empty() ? std::optional(header.worker) : tree.place_of(header.worker);
    return place && *place < lease.world && tree.rank_of(*place) == header.worker ? place : std::nullopt;
  }
  // Where packets of this chunk come from and go to.
  link::Address address_of(std::uint16_t place, std::uint32_t chunk) const {
    if (place == wire::kSwitchWorker) return *host;
    if (!tree.is_switch(place)) return workers[place];
    const auto& ports = tree.contributors[place].udp_ports;
    return {workers[place].ip, ports[chunk & (ports.size() - 1)]};
  }
};

class DataPlane {
 public:
  // `on_mismatch(job, epoch, rank, what)` is called from a shard's thread: the workers disagree about what they fold.
  using OnMismatch = std::function<void(std::uint16_t, std::uint16_t, int, std::string)>;

  static Result<std::unique_ptr<DataPlane>> start(DataPlaneOptions options, const OnMismatch& on_mismatch);
  virtual ~DataPlane() = default;  // stops and joins the threads

  virtual const std::vector<std::uint16_t>& udp_ports() const = 0;
  static std::size_t memory_bytes(const wire::Lease& lease);  // what admitting it would take, all shards together
  // Packets addressed to a job's host are folded on their way there, where it sees them.
  virtual bool folds_on_the_way() const { return false; }
  // Before the first job: the IPv4 address of the switch above. It matters where packets are folded on their way.
  virtual void set_parent(std::uint32_t /*ip*/) {}
  virtual void admit(Admission admission) = 0;  // returns when every shard has it
  virtual void evict(std::uint16_t job) = 0;    // returns when no shard has it

  // Snapshots, safe from any thread.
  virtual std::vector<std::uint64_t> drops() const = 0;       // by DropReason, all shards together
  virtual JobCounters counters(std::uint16_t job) const = 0;  // all shards together
  virtual link::LinkStats link_stats() const = 0;
  virtual std::vector<ThreadUse> threads() const { return {}; }
};

}  // namespace netfold::switching

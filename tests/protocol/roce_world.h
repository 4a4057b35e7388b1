// A whole job of RoCE workers in one thread and in virtual time: endpoints over links that lose, duplicate and reorder
// by seed, and the Ethernet switch at the other ends of these links. Or a tree of switches, with links between them
// that misbehave alike.
#pragma once

#include <memory>
#include <vector>

#include "base/prng.h"
#include "group/via_roce/packet_channel.h"
#include "group/via_roce/roce_session.h"
#include "link/fault_injector.h"
#include "link/memory.h"
#include "switch/ethernet/memory_switch.h"

namespace netfold::tests {

struct RoceWorldOptions {
  std::uint16_t world = 2;
  std::uint16_t jobs = 1;  // each with workers of its own, on ports of their own
  wire::roce::Version version = wire::roce::Version::kV1;
  // How many switches each level of a tree has, from the leaves up, without the one above all; empty: one switch.
  std::vector<std::uint16_t> levels = {};
  numbers::BfpShape bfp = {};
  std::uint32_t first_psn = 0;  // of rank 0; the others' are elsewhere
  std::uint32_t window_packets = 512;
  std::uint32_t message_packets = wire::roce::kMessagePackets;
  bool one_way = false;
  Nanoseconds timeout = 30 * kSecond;  // of a worker
  link::Faults faults = {};
  switching::RoceOptions roce = {};
  std::uint16_t threads = 1;  // of the switch; port p is received by thread p mod threads
  std::uint64_t seed = 1;
};

// Faults, version, lengths and first number of packets.
void draw_network(Prng& prng, RoceWorldOptions& options);

class RoceWorld {
 public:
  explicit RoceWorld(RoceWorldOptions options);

  // Workers are numbered through all jobs: rank r of job j is j * world + r. With one switch each sits at the port of
  // that number.
  void submit(std::size_t worker, const group::CollectiveRequest& request);
  // Runs until every submitted all-reduce is done, at most `limit` of virtual time, or until every worker that is not
  // done has given up. True if done.
  bool run(Nanoseconds limit);

  group::RoceSession& session(std::size_t worker) { return *workers_[worker].session; }
  const std::optional<Error>& error(std::size_t worker) const { return workers_[worker].error; }
  group::PacketChannel& channel(std::size_t worker) { return *workers_[worker].channel; }
  group::RoceEndpoint& endpoint(std::size_t worker) { return workers_[worker].channel->endpoint(); }
  // Those of a tree level by level, the leaves first.
  std::size_t switches() const { return switches_.size(); }
  switching::MemorySwitch& of_switch(std::size_t number) { return *switches_[number]; }
  switching::RoceHandler& handler(std::size_t thread = 0, std::size_t of_switch = 0) {
    const switching::SwitchThread& of = switches_[of_switch]->thread(thread);
    return options_.version == wire::roce::Version::kV1 ? *of.roce : *of.roce_v2;
  }
  const switching::Pipeline& pipeline(std::size_t thread) const { return switches_.front()->pipeline(thread); }
  switching::Settings& defaults() { return switches_.front()->settings(); }
  switching::AggregationSettings& settings() { return switches_.front()->jobs_settings(); }
  link::MemoryPort& port(std::size_t number) { return switches_.front()->port(static_cast<link::PortNumber>(number)); }
  // Frames that the switches hold, in any way.
  std::size_t buffers_in_use() const;
  // Long frames that have left a switch for the one above it.
  std::uint64_t long_frames_up(std::size_t of_switch) const { return cables_[of_switch].long_frames_up; }
  Nanoseconds time() const { return time_; }
  void stop_worker(std::size_t worker) { workers_[worker].is_stopped = true; }
  // The worker's connections begin anew, with other queue pairs and sequence numbers, in a new epoch of the whole job.
  void restart_job(std::uint16_t job, std::uint16_t epoch);

 private:
  struct Worker {
    std::unique_ptr<group::PacketChannel> channel;
    std::unique_ptr<group::RoceSession> session;
    std::optional<Error> error;  // why it has given up
    bool is_stopped = false;
  };

  struct Seat {  // a port of a switch
    std::size_t of_switch;
    link::PortNumber port;

    bool operator==(const Seat&) const = default;
  };
  struct Cable {  // from a switch to the one above it
    Seat below, above;
    std::unique_ptr<link::Link> end_below, end_above;
    std::uint64_t long_frames_up = 0;
  };

  std::uint16_t workers_of_leaf() const;
  Seat seat_of(std::size_t worker) const;
  std::size_t worker_at(Seat seat) const;
  void open_switches();
  void open_switch(std::uint16_t below, bool is_leaf, std::optional<Seat> above);
  void send(Seat from, const std::vector<std::byte>& frame);
  void open_job(std::uint16_t job, std::uint16_t epoch);
  bool is_done() const;
  bool has_ended() const;
  bool step();
  bool step_switches();

  RoceWorldOptions options_;
  Prng prng_;
  link::MemoryNetwork network_;
  std::unique_ptr<link::Link> wire_;  // the switch's ends of all cables
  std::vector<std::unique_ptr<switching::MemorySwitch>> switches_;
  std::vector<Cable> cables_;  // of all switches but the topmost, by their number
  std::vector<Worker> workers_;
  std::uint32_t next_queue_pair_ = 0x100;
  Nanoseconds time_ = kSecond;
};

// The last of a message's first `packets` frames, as `self` writes them to `peer`. All bytes of its gradients are
// `fill`, or its packets are short.
std::vector<std::byte> message_frame(const group::QpInfo& self, const group::QpInfo& peer,
                                     const wire::roce::AggregationHeader& header, std::uint64_t packets,
                                     std::byte fill = {}, bool is_short = false);

}  // namespace netfold::tests

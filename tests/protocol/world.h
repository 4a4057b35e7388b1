// A whole job in one thread and in virtual time: workers' streams and a switch over memory links that lose, duplicate
// and reorder by seed. A test asks that every rank has the same bits as the plain recursive fold.
#pragma once

#include <memory>
#include <vector>

#include "base/prng.h"
#include "group/via_switch/data_path.h"
#include "group/via_switch/observer_path.h"
#include "link/fault_injector.h"
#include "link/memory.h"
#include "protocol/frame_switch.h"
#include "switch/switch_path.h"

namespace netfold::tests {

struct WorldOptions {
  std::uint16_t world = 2;
  std::uint32_t slots = 64;
  std::uint16_t shards = 1;
  std::uint16_t payload_bytes = 256;
  numbers::BfpShape bfp = {};
  bool tagged = false;
  std::uint16_t epoch = 1;
  std::uint32_t first_chunk = 0;
  link::Faults faults = {};
  std::uint64_t seed = 1;
  bool frames = false;  // through the frame switch, not the sockets'
  bool host = false;    // the job has one, which expects every tensor that rank 0 submits
};

class World {
 public:
  explicit World(WorldOptions options);

  // Runs until every submitted all-reduce is done on every rank and the host, if there is one, has heard of it, at most
  // `limit` of virtual time. True if done, and no signal came before its tensor was folded.
  bool run(Nanoseconds limit);
  void pump_switch();
  void submit(std::uint16_t rank, const group::CollectiveRequest& request);

  group::DataPath& worker(std::uint16_t rank) { return *workers_[rank].stream; }
  link::Link& link_of(std::uint16_t rank) { return *workers_[rank].link; }
  std::uint64_t drops(switching::DropReason reason) const;
  switching::ShardJob& job(std::uint16_t index) { return frames_ ? frames_->job(index) : *jobs_[index]; }
  FrameSwitch* frames() { return frames_.get(); }
  link::MemoryNetwork& network() { return network_; }
  const wire::Lease& lease() const { return lease_; }
  Nanoseconds time() const { return time_; }
  std::size_t finished(std::uint16_t rank) const { return workers_[rank].finished; }
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  // Tensors that the host has heard of.
  std::size_t signalled() const { return signalled_; }
  void stop_worker(std::uint16_t rank) { workers_[rank].is_stopped = true; }

 private:
  struct Worker {
    std::unique_ptr<link::Link> link;
    std::unique_ptr<group::DataPath> stream;
    std::size_t submitted = 0, finished = 0;
    bool is_stopped = false;
  };

  void pump_host();
  bool is_done() const;
  bool step();

  wire::Lease lease_;
  link::MemoryNetwork network_;
  Nanoseconds time_ = kSecond;
  std::vector<std::unique_ptr<switching::ShardJob>> jobs_;
  std::vector<std::unique_ptr<switching::SwitchPath>> shards_;  // these two, or frames_
  std::unique_ptr<FrameSwitch> frames_;
  std::vector<Worker> workers_;
  std::unique_ptr<link::Link> host_link_;
  std::unique_ptr<group::ObserverPath> host_;
  std::vector<std::uint64_t> ends_;  // of the tensors that the host expects, in chunks
  std::size_t signalled_ = 0;
  bool signals_too_early_ = false;
  std::vector<std::string> mismatches_;
};

}  // namespace netfold::tests

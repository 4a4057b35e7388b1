// A whole job of RoCE workers in one thread and in virtual time: endpoints over links that lose, duplicate and reorder
// by seed, and the frame switch between them, whose ports are the other ends of those links.
#pragma once

#include <memory>
#include <vector>

#include "base/prng.h"
#include "engine/roce/packet_channel.h"
#include "engine/roce/roce_stream.h"
#include "frames/pipeline.h"
#include "frames/roce_dialect.h"
#include "link/fault_injector.h"
#include "link/frame_memory.h"
#include "link/memory.h"

namespace netfold::tests {

struct RoceWorldOptions {
  std::uint16_t world = 2;
  std::uint16_t jobs = 1;  // each with workers of its own, on ports of their own
  numbers::BfpShape bfp = {};
  std::uint32_t first_psn = 0;  // of rank 0; the others' are elsewhere
  std::uint32_t window_packets = 512;
  link::Faults faults = {};
  frames::RoceOptions roce = {};
  std::uint16_t threads = 1;  // of the switch; port p is received by thread p mod threads
  std::uint64_t seed = 1;
};

class RoceWorld {
 public:
  explicit RoceWorld(RoceWorldOptions options);

  // Workers are numbered through all jobs: rank r of job j is j * world + r, and sits at the port of that number.
  void submit(std::size_t worker, const engine::AllReduce& request);
  // Runs until every submitted all-reduce is done, at most `limit` of virtual time. True if done.
  bool run(Nanoseconds limit);

  engine::RoceStream& stream(std::size_t worker) { return *workers_[worker].stream; }
  engine::PacketChannel& channel(std::size_t worker) { return *workers_[worker].channel; }
  session::RoceEndpoint& endpoint(std::size_t worker) { return workers_[worker].channel->endpoint(); }
  frames::RoceDialect& dialect(std::size_t thread = 0) { return *dialects_[thread]; }
  frames::Pipeline& pipeline(std::size_t thread) { return *pipelines_[thread]; }
  frames::Settings& defaults() { return defaults_; }
  frames::AggregationSettings& settings() { return settings_; }
  link::MemoryPort& port(std::size_t number) { return *ports_[number]; }
  link::MemoryPool& pool() { return pool_; }
  Nanoseconds time() const { return time_; }
  void stop_worker(std::size_t worker) { workers_[worker].is_stopped = true; }
  // The worker's connections begin anew, with other queue pairs and sequence numbers, in a new epoch of the whole job.
  void restart_job(std::uint16_t job, std::uint16_t epoch);

 private:
  struct Worker {
    std::unique_ptr<engine::PacketChannel> channel;
    std::unique_ptr<engine::RoceStream> stream;
    bool is_stopped = false;
  };

  void start_thread(std::uint16_t thread);
  void open_job(std::uint16_t job, std::uint16_t epoch);
  bool is_done() const;
  bool step();
  bool step_switch();

  RoceWorldOptions options_;
  Prng prng_;
  link::MemoryNetwork network_;
  std::unique_ptr<link::Link> wire_;  // the switch's ends of all cables
  link::MemoryPool pool_;
  frames::Settings defaults_;
  frames::AggregationSettings settings_{defaults_};
  frames::MacTable addresses_;
  std::vector<std::unique_ptr<link::MemoryPort>> ports_;
  frames::RoceOwners owners_;
  std::vector<std::unique_ptr<link::MemoryHandover>> inboxes_;  // by thread, as the next two
  std::vector<frames::RoceDialect*> dialects_;
  std::vector<std::unique_ptr<frames::Pipeline>> pipelines_;
  std::vector<Worker> workers_;
  std::uint32_t next_queue_pair_ = 0x100;
  Nanoseconds time_ = kSecond;
};

}  // namespace netfold::tests

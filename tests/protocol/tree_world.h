// A whole job through a tree of switches, in one thread and in virtual time, over memory links that lose, duplicate and
// reorder by seed, on every link of the tree.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "group/via_switch/data_path.h"
#include "link/fault_injector.h"
#include "link/memory.h"
#include "protocol/frame_switch.h"
#include "switch/switch_path.h"

namespace netfold::tests {

// A worker (one rank, nothing below), or a switch and what is below it, in the order of the ranks.
struct Shape {
  std::uint16_t first_rank = 0, ranks = 1;
  std::vector<Shape> below = {};

  bool is_switch() const { return !below.empty(); }
  std::string text() const;  // "(0 (1 2) 3)"
};

Shape worker(std::uint16_t rank);
Shape one_switch(std::uint16_t first_rank, std::uint16_t ranks);
Shape switch_above(std::vector<Shape> below);
// Any tree of at most `levels` switches above each other; the topmost has at least one below it.
Shape random_shape(std::uint16_t ranks, int levels, Prng& prng);

// The sum by its definition: a switch folds what is below it pairwise, in fp32 (or int32, as wrapping bits).
std::vector<float> fold_by(const Shape& shape, const std::vector<std::vector<float>>& widened);

struct TreeOptions {
  std::uint32_t slots = 64;
  std::uint16_t shards_max = 1;  // each switch has 1 to so many
  std::uint16_t payload_bytes = 256;
  numbers::BfpShape bfp = {};
  bool tagged = false;
  std::uint32_t first_chunk = 0;
  double frames = 0;  // how many of the switches are Ethernet switches, by chance
  link::Faults faults = {};
  std::uint64_t seed = 1;
};

class TreeWorld {
 public:
  TreeWorld(const Shape& shape, TreeOptions options);

  // Until every all-reduce is done on every rank that is not stopped; false after `limit` of virtual time.
  bool run(Nanoseconds limit);
  void submit(std::uint16_t rank, const group::CollectiveRequest& request);
  void stop_worker(std::uint16_t rank) { workers_[rank].is_stopped = true; }
  void stop_switch(std::size_t number) { switches_[number].is_stopped = true; }

  group::DataPath& worker(std::uint16_t rank) { return *workers_[rank].path; }
  // In the order of building: a switch, then each switch below it.
  switching::JobCounters counters(std::size_t number) const;
  std::uint64_t drops(std::size_t number, switching::DropReason reason) const;
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  Nanoseconds time() const { return time_; }

 private:
  struct Worker {
    std::unique_ptr<link::Link> link;
    std::unique_ptr<group::DataPath> path;
    std::size_t submitted = 0, finished = 0;
    bool is_stopped = false;
  };
  struct Switch {
    std::vector<std::unique_ptr<switching::ShardJob>> jobs;
    std::vector<std::unique_ptr<switching::SwitchPath>> paths;
    std::unique_ptr<FrameSwitch> frames;  // in the place of these two
    bool is_stopped = false;
  };

  void build(const Shape& shape, std::optional<switching::Above> above, std::vector<std::uint16_t> ports);
  std::unique_ptr<link::Link> open(std::uint16_t port, bool with_faults);
  std::vector<std::uint16_t> new_ports(std::size_t count);
  bool is_done() const;

  TreeOptions options_;
  Prng prng_;
  std::uint16_t ranks_;
  std::uint16_t next_port_ = 1, next_job_ = 0;
  link::MemoryNetwork network_;
  Nanoseconds time_ = kSecond;
  std::vector<Switch> switches_;
  std::vector<Worker> workers_;
  std::vector<std::string> mismatches_;
};

}  // namespace netfold::tests

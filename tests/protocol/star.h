// Jobs at a switch in a star whose links have rates and queues, in virtual time: every worker and the switch has a link
// of its own to the middle. Each direction of a link serves one queue, which drops what finds no room. The
// switch's words to its workers, beside the packets, come at once.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "group/via_switch/data_path.h"
#include "protocol/cubic_flow.h"
#include "switch/fair_shares.h"
#include "switch/late_ranks.h"
#include "switch/switch_path.h"
#include "testing/timeline.h"

namespace netfold::tests {

struct StarOptions {
  std::uint16_t jobs = 1, world = 8;
  bool shares_links = false;  // the jobs have the same workers: a rank's links carry the packets of all its jobs
  double worker_mbit_s = 200, switch_mbit_s = 200;
  std::size_t queue_bytes = 128 << 10;
  Nanoseconds latency = 30 * kMicrosecond;  // of a link, one way
  double loss = 0;                          // of every datagram on every link
  std::uint64_t seed = 1;
};

class Star {
 public:
  explicit Star(StarOptions options);
  ~Star();

  // Every rank of the job all-reduces a tensor of its own, or scatters or gathers one of `count` elements, in place.
  void submit(std::uint16_t job, std::size_t count, schedule::Collective collective = schedule::Collective::kAllReduce);
  void run_for(Nanoseconds time);
  // False if not all are done at `limit`.
  bool run_until_done(Nanoseconds limit);
  void set_switch_rate(double mbit_s);
  void set_rank_rate(std::uint16_t rank, double mbit_s);  // of the first job
  // A TCP connection to the machine of the switch (up) or from it, until the end.
  enum class Way : std::uint8_t { kUp, kDown };
  void add_tcp(Way way);

  Nanoseconds now() const { return timeline_.now(); }
  // When the last worker of the job was done.
  Nanoseconds done_at(std::uint16_t job) const { return jobs_[job]->done_at; }
  group::DataPathStats stats(std::uint16_t job, std::uint16_t rank) const;
  std::uint64_t dropped() const { return dropped_; }  // by full queues
  std::uint64_t tcp_bytes() const { return tcp_.delivered_bytes(); }
  // The time that the narrowest link needs for one all-reduce of `count` elements by every job.
  Nanoseconds bound(std::size_t count) const;

 private:
  class StarLink;
  struct Wire {  // one direction of a link
    double bytes_a_second = 0;
    Nanoseconds busy_until = 0;
    std::uint64_t carried_bytes = 0;
  };
  struct Datagram {
    link::Address from;
    std::vector<std::byte> bytes;
  };
  struct Node {
    Wire to_middle, from_middle;
    std::vector<Datagram> inbox;
    std::function<void()> on_arrival;
    bool is_woken = false;
  };
  struct Worker {
    std::unique_ptr<link::Link> link;
    std::unique_ptr<group::DataPath> path;
    std::vector<std::unique_ptr<std::vector<float>>> tensors;
    std::uint64_t submitted = 0, finished = 0;
    Nanoseconds wakes_at = kNever;
  };
  struct Job {
    wire::Lease lease;
    std::unique_ptr<switching::ShardJob> at_switch;
    std::vector<Worker> workers;
    Nanoseconds done_at = 0;
  };

  Node& links_of(std::uint16_t port);
  void transmit(link::Address from, link::Address to, std::vector<std::byte> bytes);
  std::optional<Nanoseconds> pass(Wire& wire, std::size_t bytes);
  void arrive(std::uint16_t port, Datagram datagram);
  void pump(Job& job, Worker& worker);
  void look_at_jobs();
  void send_tcp(Wire& wire);

  const StarOptions options_;
  testing::Timeline timeline_;
  Prng prng_;
  std::vector<Node> nodes_;  // by port
  std::unique_ptr<switching::SwitchPath> switch_;
  std::vector<std::unique_ptr<Job>> jobs_;
  switching::FairShares shares_;
  switching::LateRanks late_;
  CubicFlow tcp_;
  std::uint64_t dropped_ = 0;
};

}  // namespace netfold::tests

// One thread of the switch: a socket, the slots of every job that fall to it, and nothing shared on the packet path.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/data_plane.h"
#include "engine/wakeup.h"
#include "fold/aggregator.h"

namespace netfold::engine {

// A counter with one writer: a plain add for it, and readable from anywhere.
class Counter {
 public:
  void add(std::uint64_t amount) { value_.store(get() + amount, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// A job as one shard sees it. Made and destroyed by control threads; touched by the shard alone in between.
struct ShardJob {
  ShardJob(const Admission& admitted, std::uint16_t shard)
      : admission(admitted), aggregator(admitted.lease, shard) {}

  Admission admission;
  fold::Aggregator aggregator;
  bool has_failed = false;
  std::vector<std::span<const std::byte>> results;  // folded in this batch, for every worker
  struct {
    Counter contributions, folded_chunks, results_sent, results_resent, missing_sent, probes, received_bytes,
        sent_bytes, duplicates, stale;
  } counters;
};

class Shard {
 public:
  Shard(std::uint16_t index, std::unique_ptr<link::Link> link, std::uint16_t jobs_max, int core,
        DataPlane::OnMismatch on_mismatch);
  ~Shard();
  Shard(const Shard&) = delete;

  // Puts `job` (or nothing) in place `id`; returns when the thread has it. A removed job must live until then.
  void place(std::uint16_t id, ShardJob* job);

  std::uint16_t port() const { return link_->local_address().port; }
  std::uint64_t drops(DropReason reason) const { return drops_[static_cast<std::size_t>(reason)].get(); }
  link::LinkStats link_stats() const;

 private:
  class JobOutbox;
  struct Notice {
    link::Address to;
    std::array<std::byte, wire::kHeaderBytes + wire::kTagBytes> bytes;
    std::size_t size_bytes;
  };
  struct Placement {
    std::uint16_t id;
    ShardJob* job;
    std::promise<void> done;
  };

  void run(int core);
  void take_placements();
  void handle(const link::Incoming& datagram);
  // The job of a packet whose sender, epoch and tag are right; otherwise the drop is counted.
  ShardJob* admit_packet(const link::Incoming& datagram, const wire::Packet& packet);
  void count(ShardJob& job, fold::Verdict verdict, std::size_t size_bytes);
  void drop(DropReason reason) { drops_[static_cast<std::size_t>(reason)].add(1); }
  void flush();
  void send_backlog();
  void publish_stats();

  std::uint16_t index_;
  std::unique_ptr<link::Link> link_;
  DataPlane::OnMismatch on_mismatch_;
  std::vector<ShardJob*> jobs_;                       // by job id
  std::vector<ShardJob*> busy_;                       // jobs with results in this batch
  std::vector<Notice> notices_;                       // of this batch
  std::vector<link::Outgoing> backlog_;               // not taken by the link yet
  std::array<Counter, static_cast<std::size_t>(DropReason::kCount)> drops_;
  std::array<Counter, 6> link_stats_;                 // LinkStats, field by field

  Wakeup wakeup_;
  std::atomic<bool> has_placements_{false}, stopping_{false};
  std::mutex placements_mutex_;                       // never taken on the packet path while has_placements_ is false
  std::vector<Placement> placements_;
  std::thread thread_;
};

}  // namespace netfold::engine

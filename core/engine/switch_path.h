// The switch's data path of one shard: packets of a link in, verdicts counted, results and notices out. No thread and
// no clock: a Shard drives it with a thread and a socket, the simulations of tests/protocol in virtual time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/counter.h"
#include "engine/data_plane.h"
#include "fold/aggregator.h"
#include "link/link.h"

namespace netfold::engine {

// A job as one shard sees it. Made and destroyed by control threads; touched by the shard alone in between.
struct ShardJob {
  ShardJob(const Admission& admitted, std::uint16_t shard);

  Admission admission;
  fold::Aggregator aggregator;
  bool has_failed = false;
  std::vector<std::span<const std::byte>> results;  // folded in this batch, for every worker
  struct {
    Counter contributions, folded_chunks, results_sent, results_resent, missing_sent, probes, received_bytes,
        sent_bytes, duplicates, stale;
  } counters;
};

class SwitchPath {
 public:
  SwitchPath(std::unique_ptr<link::Link> link, std::uint16_t jobs_max, DataPlane::OnMismatch on_mismatch);

  // Handles what has come, up to a bound, and sends what follows from it.
  void pump();
  // Puts `job` (or nothing) in place `id`.
  void place(std::uint16_t id, ShardJob* job);

  bool has_backlog() const { return !backlog_.empty(); }  // the link is full: poll it for writing
  const link::Link& link() const { return *link_; }
  std::uint64_t drops(DropReason reason) const { return drops_[static_cast<std::size_t>(reason)].get(); }
  link::LinkStats link_stats() const;  // a snapshot, from any thread

 private:
  class JobOutbox;
  struct Notice {
    link::Address to;
    std::array<std::byte, wire::kHeaderBytes + wire::kTagBytes> bytes;
    std::size_t size_bytes;
  };

  void handle(const link::Incoming& datagram);
  // The job of a packet whose sender, epoch and tag are right; otherwise the drop is counted.
  ShardJob* admit_packet(const link::Incoming& datagram, const wire::Packet& packet);
  void count(ShardJob& job, fold::Verdict verdict, std::size_t size_bytes);
  void drop(DropReason reason) { drops_[static_cast<std::size_t>(reason)].add(1); }
  void queue(ShardJob& job, link::Address worker, std::span<const std::byte> packet);
  void flush();
  void send_notices();
  void send_backlog();
  void publish_stats();

  std::unique_ptr<link::Link> link_;
  DataPlane::OnMismatch on_mismatch_;
  std::vector<ShardJob*> jobs_;          // by job id
  std::vector<ShardJob*> busy_;          // jobs with results in this batch
  std::vector<Notice> notices_;          // of this batch
  std::vector<link::Outgoing> sending_;  // notices, as the link wants them
  std::vector<link::Outgoing> backlog_;  // results not taken by the link yet
  std::array<Counter, static_cast<std::size_t>(DropReason::kCount)> drops_;
  std::array<Counter, 6> link_stats_;  // LinkStats, field by field
};

}  // namespace netfold::engine

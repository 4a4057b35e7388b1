// Checks and counts a shard's data packets, whatever brought them: which job they are of, whether their sender, epoch
// and tag are right, and what the aggregator made of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/counter.h"
#include "switch/aggregation/aggregator.h"
#include "switch/aggregation/lateness.h"
#include "switch/data_plane.h"

namespace netfold::switching {

// A job as one shard sees it. Made and destroyed by control threads; only the shard uses it in between.
struct ShardJob {
  ShardJob(const Admission& admitted, std::uint16_t shard, Payloads payloads = Payloads::kCopied);
  virtual ~ShardJob() = default;
  JobCounters snapshot() const;  // from any thread
  // A packet from this worker, or to it, was lost: its contribution is asked for, or its result is sent again.
  void count_missing(std::uint16_t worker);
  void count_resent(std::uint16_t worker);

  Admission admission;
  Aggregator aggregator;
  bool has_failed = false;
  struct Outcome {
    std::span<const std::byte> result, done;  // for the receivers, and for the others
    Receivers receivers;
  };
  std::vector<Outcome> results;  // of the chunks that were completed in this batch
  struct {
    Counter contributions, folded_chunks, results_sent, results_resent, missing_sent, probes, received_bytes,
        sent_bytes, duplicates, stale, signals, up_sums, up_resent, up_sent_bytes, up_received_bytes;
  } counters;
  Lateness lateness;
};

class PacketFilter {
 public:
  explicit PacketFilter(std::uint16_t jobs_max) : jobs_(jobs_max) {}

  // The job of a packet that is right in itself and comes from whom it should; otherwise null, and the drop is counted.
  // Its worker is a place from then on. It may come from the switch above the job's.
  struct Admitted {
    ShardJob* job = nullptr;
    bool is_from_above = false;
  };
  Admitted admit(std::span<const std::byte> bytes, link::Address from, wire::Packet& packet);
  void count(ShardJob& job, Verdict verdict, const wire::Header& header, std::size_t size_bytes, Nanoseconds now,
             bool is_from_above = false);

  // Puts `job` (or nothing) in place `id`.
  void place(std::uint16_t id, ShardJob* job);
  ShardJob* job(std::uint16_t id) const { return id < jobs_.size() ? jobs_[id] : nullptr; }
  std::uint64_t drops(DropReason reason) const { return drops_[static_cast<std::size_t>(reason)].get(); }

 private:
  ShardJob* job_of(std::span<const std::byte> bytes, link::Address from, wire::Packet& packet);
  ShardJob* job_below(std::span<const std::byte> bytes, link::Address from, const wire::Packet& packet);
  void drop(DropReason reason) { drops_[static_cast<std::size_t>(reason)].add(1); }

  std::vector<ShardJob*> jobs_;   // by job id
  std::vector<ShardJob*> below_;  // those with a switch above
  std::array<Counter, static_cast<std::size_t>(DropReason::kCount)> drops_;
};

}  // namespace netfold::switching

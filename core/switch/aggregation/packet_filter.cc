#include "switch/aggregation/packet_filter.h"

#include <utility>

namespace netfold::switching {
namespace {

// The counter of each verdict that is a drop.
DropReason reason_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kDuplicate: return DropReason::kDuplicate;
    case Verdict::kStaleChunk: return DropReason::kStaleChunk;
    case Verdict::kMismatch: return DropReason::kMismatch;
    case Verdict::kMalformedBlock: return DropReason::kMalformedBlock;
    case Verdict::kBadLength: return DropReason::kLength;
    case Verdict::kBadSlot: return DropReason::kBadSlot;
    case Verdict::kNoRoom: return DropReason::kNoRoom;
    default: return DropReason::kKind;
  }
}

}  // namespace

ShardJob::ShardJob(const Admission& admitted, std::uint16_t shard, Payloads payloads)
    : admission(admitted),
      aggregator(admitted.lease, shard, payloads, admitted.tree),
      lateness(admitted.lease.world, aggregator.places()) {
  results.reserve(admitted.lease.slots);
}

JobCounters ShardJob::snapshot() const {
  return {counters.contributions.get(),     counters.folded_chunks.get(),
          counters.results_sent.get(),      counters.results_resent.get(),
          counters.missing_sent.get(),      counters.probes.get(),
          counters.received_bytes.get(),    counters.sent_bytes.get(),
          counters.duplicates.get(),        counters.stale.get(),
          counters.signals.get(),           counters.up_sums.get(),
          counters.up_resent.get(),         counters.up_sent_bytes.get(),
          counters.up_received_bytes.get(), lateness.snapshot()};
}

void ShardJob::count_missing(std::uint16_t worker) {
  counters.missing_sent.add(1);
  lateness.on_lost(worker);
}

void ShardJob::count_resent(std::uint16_t worker) {
  counters.results_resent.add(1);
  lateness.on_lost(worker);
}

void PacketFilter::place(std::uint16_t id, ShardJob* job) {
  std::erase(below_, jobs_[id]);
  jobs_[id] = job;
  if (job != nullptr && job->admission.tree.above) below_.push_back(job);
}

PacketFilter::Admitted PacketFilter::admit(std::span<const std::byte> bytes, link::Address from, wire::Packet& packet) {
  if (const wire::ParseError error = wire::parse(bytes, packet); error != wire::ParseError::kNone) {
    drop(static_cast<DropReason>(static_cast<int>(error) - 1));  // kNone is not a drop reason
    return {};
  }
  if (ShardJob* const job = job_below(bytes, from, packet); job != nullptr) return {job, true};
  ShardJob* const job = job_of(bytes, from, packet);
  if (job != nullptr && packet.header.kind == wire::Kind::kProbe) job->counters.probes.add(1);
  return {job, false};
}

// Of a packet of the switch above: it has that switch's number of the job.
ShardJob* PacketFilter::job_below(std::span<const std::byte> bytes, link::Address from, const wire::Packet& packet) {
  for (ShardJob* const job : below_) {
    const Above& above = *job->aggregator.tree().above;
    if (job->has_failed || !(above.address_of(packet.header.chunk) == from)) continue;
    if (wire::is_of_lease(above.lease, packet, bytes)) return job;
  }
  return nullptr;
}

ShardJob* PacketFilter::job_of(std::span<const std::byte> bytes, link::Address from, wire::Packet& packet) {
  const wire::Header& header = packet.header;
  ShardJob* const found = job(header.job);
  if (found == nullptr || found->has_failed) return drop(DropReason::kUnknownJob), nullptr;
  const wire::Lease& lease = found->aggregator.lease();
  if (header.epoch != lease.epoch) return drop(DropReason::kStaleEpoch), nullptr;
  const std::optional<std::uint16_t> place = found->admission.place_of(header);
  if (!place) return drop(DropReason::kUnknownWorker), nullptr;
  if (!(found->admission.address_of(*place, header.chunk) == from)) return drop(DropReason::kStranger), nullptr;
  if (!lease.has_right_tag(packet, bytes)) return drop(DropReason::kBadTag), nullptr;
  packet.header.worker = *place;
  return found;
}

void PacketFilter::count(ShardJob& job, Verdict verdict, const wire::Header& header, std::size_t size_bytes,
                         Nanoseconds now, bool is_from_above) {
  (is_from_above ? job.counters.up_received_bytes : job.counters.received_bytes).add(size_bytes);
  switch (verdict) {
    case Verdict::kFolded: job.counters.folded_chunks.add(1); [[fallthrough]];
    case Verdict::kKept:
      job.counters.contributions.add(1);
      job.lateness.on_contribution(header.worker, job.aggregator.place_of(header.chunk), verdict == Verdict::kFolded,
                                   now);
      return;
    case Verdict::kFromAbove:
    case Verdict::kAnswered:
    case Verdict::kAwaited: return;
    case Verdict::kDuplicate: job.counters.duplicates.add(1); break;
    case Verdict::kStaleChunk: job.counters.stale.add(1); break;
    default: break;
  }
  drop(reason_of(verdict));
}

}  // namespace netfold::switching

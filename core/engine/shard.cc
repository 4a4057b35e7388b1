#include "engine/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/thread_setup.h"

namespace netfold::engine {
namespace {

constexpr std::size_t kReceiveMost = 1024;           // datagrams a batch
constexpr std::size_t kBatchesBeforePoll = 16;       // so that mail and stopping are never far away
constexpr std::size_t kBacklogMost = 1u << 16;       // beyond it results are dropped here; probes bring them back

// What the shard counts for each verdict that is a drop.
DropReason reason_of(fold::Verdict verdict) {
  switch (verdict) {
    case fold::Verdict::kDuplicate: return DropReason::kDuplicate;
    case fold::Verdict::kStaleChunk: return DropReason::kStaleChunk;
    case fold::Verdict::kMismatch: return DropReason::kMismatch;
    case fold::Verdict::kMalformedBlock: return DropReason::kMalformedBlock;
    case fold::Verdict::kBadLength: return DropReason::kLength;
    case fold::Verdict::kBadSlot: return DropReason::kBadSlot;
    default: return DropReason::kKind;
  }
}

}  // namespace

// Collects what the aggregator of one job wants to send; the shard sends it after the batch.
class Shard::JobOutbox final : public fold::Outbox {
 public:
  JobOutbox(Shard& shard, ShardJob& job) : shard_(shard), job_(job) {}

  void result_to_all(std::span<const std::byte> packet) override {
    if (job_.results.empty()) shard_.busy_.push_back(&job_);
    job_.results.push_back(packet);
  }
  void result_to_one(std::uint16_t worker, std::span<const std::byte> packet) override {
    job_.counters.results_resent.add(1);
    shard_.backlog_.push_back({job_.admission.workers[worker], packet, {}, {}});
    job_.counters.sent_bytes.add(packet.size());
  }
  void notice(std::uint16_t worker, std::span<const std::byte> packet) override {
    Notice& notice = shard_.notices_.emplace_back();
    notice.to = job_.admission.workers[worker];
    std::copy(packet.begin(), packet.end(), notice.bytes.begin());
    notice.size_bytes = packet.size();
    if ((static_cast<unsigned>(packet[0]) & 0xf) == static_cast<unsigned>(wire::Kind::kMissing)) {
      job_.counters.missing_sent.add(1);
    }
  }
  void mismatch(std::uint16_t rank, std::string what) override {
    job_.has_failed = true;
    shard_.on_mismatch_(job_.admission.lease.job, job_.admission.lease.epoch, rank, std::move(what));
  }

 private:
  Shard& shard_;
  ShardJob& job_;
};

Shard::Shard(std::uint16_t index, std::unique_ptr<link::Link> link, std::uint16_t jobs_max, int core,
             DataPlane::OnMismatch on_mismatch)
    : index_(index), link_(std::move(link)), on_mismatch_(std::move(on_mismatch)), jobs_(jobs_max) {
  busy_.reserve(jobs_max);
  notices_.reserve(4096);
  backlog_.reserve(kBacklogMost);
  thread_ = std::thread([this, core] { run(core); });
}

Shard::~Shard() {
  stopping_ = true;
  wakeup_.wake();
  thread_.join();
}

void Shard::place(std::uint16_t id, ShardJob* job) {
  std::promise<void> done;
  std::future<void> taken = done.get_future();
  {
    const std::lock_guard lock(placements_mutex_);
    placements_.push_back({id, job, std::move(done)});
  }
  has_placements_.store(true, std::memory_order_release);
  wakeup_.wake();
  taken.wait();
}

link::LinkStats Shard::link_stats() const {
  return {link_stats_[0].get(), link_stats_[1].get(), link_stats_[2].get(),
          link_stats_[3].get(), link_stats_[4].get(), link_stats_[5].get()};
}

void Shard::run(int core) {
  set_up_thread(fmt::format("nf-shard-{}", index_), core);
  while (!stopping_.load(std::memory_order_relaxed)) {
    const short events = backlog_.empty() ? POLLIN : POLLIN | POLLOUT;
    std::array<pollfd, 2> descriptors{{{link_->descriptor(), events, 0}, {wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, link_->deadline());
    if (descriptors[1].revents != 0) wakeup_.clear();
    if (has_placements_.load(std::memory_order_acquire)) take_placements();
    send_backlog();
    for (std::size_t batch = 0; batch < kBatchesBeforePoll; ++batch) {
      const auto datagrams = link_->receive(kReceiveMost);
      if (datagrams.empty()) break;
      for (const link::Incoming& datagram : datagrams) handle(datagram);
      flush();
    }
    publish_stats();
  }
}

void Shard::take_placements() {
  const std::lock_guard lock(placements_mutex_);
  has_placements_.store(false, std::memory_order_relaxed);
  for (Placement& placement : placements_) {
    backlog_.clear();  // may point into a job that goes; its workers probe for what they miss
    jobs_[placement.id] = placement.job;
    if (placement.job != nullptr) placement.job->results.reserve(placement.job->admission.lease.slots);
    placement.done.set_value();
  }
  placements_.clear();
}

ShardJob* Shard::admit_packet(const link::Incoming& datagram, const wire::Packet& packet) {
  const wire::Header& header = packet.header;
  ShardJob* const job = header.job < jobs_.size() ? jobs_[header.job] : nullptr;
  if (job == nullptr || job->has_failed) return drop(DropReason::kUnknownJob), nullptr;
  const wire::Lease& lease = job->admission.lease;
  if (header.epoch != lease.epoch) return drop(DropReason::kStaleEpoch), nullptr;
  if (header.worker >= lease.world) return drop(DropReason::kUnknownWorker), nullptr;
  if (!(job->admission.workers[header.worker] == datagram.from)) return drop(DropReason::kStranger), nullptr;
  const auto covered = datagram.bytes.first(datagram.bytes.size() - packet.tag.size());
  if (lease.key ? !wire::tag_is_right(*lease.key, covered, packet.tag) : !packet.tag.empty()) {
    return drop(DropReason::kBadTag), nullptr;
  }
  return job;
}

void Shard::handle(const link::Incoming& datagram) {
  wire::Packet packet;
  if (const wire::ParseError error = wire::parse(datagram.bytes, packet); error != wire::ParseError::kNone) {
    return drop(static_cast<DropReason>(static_cast<int>(error) - 1));  // kNone is no drop reason
  }
  ShardJob* const job = admit_packet(datagram, packet);
  if (job == nullptr) return;
  JobOutbox outbox(*this, *job);
  if (packet.header.kind == wire::Kind::kProbe) job->counters.probes.add(1);
  count(*job, job->aggregator.on_packet(packet, outbox), datagram.bytes.size());
}

void Shard::count(ShardJob& job, fold::Verdict verdict, std::size_t size_bytes) {
  job.counters.received_bytes.add(size_bytes);
  switch (verdict) {
    case fold::Verdict::kFolded: job.counters.folded_chunks.add(1); [[fallthrough]];
    case fold::Verdict::kKept: job.counters.contributions.add(1); return;
    case fold::Verdict::kAnswered: return;
    case fold::Verdict::kDuplicate: job.counters.duplicates.add(1); break;
    case fold::Verdict::kStaleChunk: job.counters.stale.add(1); break;
    default: break;
  }
  drop(reason_of(verdict));
}

// Results first to the one worker, then to the next: equally long datagrams to one address cross the kernel as one.
void Shard::flush() {
  for (ShardJob* const job : busy_) {
    for (const link::Address& worker : job->admission.workers) {
      for (const auto packet : job->results) {
        backlog_.push_back({worker, packet, {}, {}});
        job->counters.sent_bytes.add(packet.size());
      }
    }
    job->counters.results_sent.add(job->results.size() * job->admission.workers.size());
    job->results.clear();
  }
  busy_.clear();
  if (!notices_.empty()) {  // short and urgent: they go ahead, and are never kept
    std::vector<link::Outgoing>& sending = backlog_;
    const std::size_t kept = sending.size();
    for (const Notice& notice : notices_) {
      sending.push_back({notice.to, std::span(notice.bytes).first(notice.size_bytes), {}, {}});
    }
    link_->send(std::span(sending).subspan(kept));
    sending.resize(kept);
    notices_.clear();
  }
  send_backlog();
}

void Shard::send_backlog() {
  if (backlog_.empty()) return;
  const std::size_t taken = link_->send(backlog_);
  backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(taken));
  if (backlog_.size() > kBacklogMost) backlog_.resize(kBacklogMost);
}

void Shard::publish_stats() {
  const link::LinkStats& stats = link_->stats();
  const std::array<std::uint64_t, 6> values{stats.sent_packets,   stats.sent_bytes,  stats.received_packets,
                                            stats.received_bytes, stats.send_errors, stats.system_calls};
  for (std::size_t i = 0; i < values.size(); ++i) link_stats_[i].add(values[i] - link_stats_[i].get());
}

}  // namespace netfold::engine

#include "switch/switch_path.h"

#include <algorithm>

namespace netfold::switching {
namespace {

constexpr std::size_t kReceiveMost = 1024;      // datagrams a batch
constexpr std::size_t kNoticesMost = 4096;      // a batch
constexpr std::size_t kBacklogMost = 1u << 16;  // beyond it results are dropped here; probes bring them back

}  // namespace

// Collects what the aggregator of one job wants to send; the shard sends it after the batch.
class SwitchPath::JobOutbox final : public AggregatorOutput {
 public:
  JobOutbox(SwitchPath& path, ShardJob& job) : path_(path), job_(job) {}

  void result_to_all(std::uint32_t place, std::span<const std::byte> packet) override {
    result_to_some(place, packet, {}, {});
  }
  void result_to_some(std::uint32_t, std::span<const std::byte> packet, std::span<const std::byte> done,
                      Receivers receivers) override {
    if (job_.results.empty()) path_.busy_.push_back(&job_);
    job_.results.push_back({packet, done, receivers});
  }
  void result_to_one(std::uint16_t worker, std::uint32_t, std::span<const std::byte> packet) override {
    job_.count_resent(worker);
    path_.queue(job_, job_.admission.address_of(worker, wire::chunk_in(packet)), packet);
  }
  void notice(std::uint16_t worker, std::span<const std::byte> packet) override {
    path_.queue_notice(job_.admission.address_of(worker, wire::chunk_in(packet)), packet);
    if (wire::is_kind(packet, wire::Kind::kMissing)) job_.count_missing(worker);
  }
  void complete(std::span<const std::byte> packet) override {
    path_.queue_notice(*job_.admission.host, packet);
    job_.counters.signals.add(1);
  }
  // Before the results of this batch: the switch above waits for it.
  void sum_to_above(std::span<const std::byte> packet, bool is_again) override {
    if (path_.backlog_.size() == kBacklogMost) return;
    path_.backlog_.push_back({address_above(packet), packet, {}, {}});
    (is_again ? job_.counters.up_resent : job_.counters.up_sums).add(1);
    job_.counters.up_sent_bytes.add(packet.size());
  }
  void notice_to_above(std::span<const std::byte> packet) override {
    path_.queue_notice(address_above(packet), packet);
    job_.counters.up_sent_bytes.add(packet.size());
  }
  void mismatch(std::uint16_t rank, std::string what) override {
    job_.has_failed = true;
    path_.on_mismatch_(job_.admission.lease.job, job_.admission.lease.epoch, rank, std::move(what));
  }

 private:
  link::Address address_above(std::span<const std::byte> packet) const {
    return job_.admission.tree.above->address_of(wire::chunk_in(packet));
  }

  SwitchPath& path_;
  ShardJob& job_;
};

SwitchPath::SwitchPath(std::unique_ptr<link::Link> link, std::uint16_t jobs_max, DataPlane::OnMismatch on_mismatch)
    : link_(std::move(link)), on_mismatch_(std::move(on_mismatch)), filter_(jobs_max) {
  busy_.reserve(jobs_max);
  notices_.reserve(kNoticesMost);
  sending_.reserve(kNoticesMost);
  backlog_.reserve(kBacklogMost);
}

bool SwitchPath::pump(Nanoseconds now) {
  send_backlog();
  const auto datagrams = link_->receive(kReceiveMost);
  for (const link::Incoming& datagram : datagrams) handle(datagram, now);
  flush();
  publish_stats();
  return !datagrams.empty();
}

void SwitchPath::place(std::uint16_t id, ShardJob* job) {
  // It may point into the job that goes; workers probe for what they miss.
  if (filter_.job(id) != nullptr) backlog_.clear();
  filter_.place(id, job);
}

link::LinkStats SwitchPath::link_stats() const {
  return {link_stats_[0].get(), link_stats_[1].get(), link_stats_[2].get(),
          link_stats_[3].get(), link_stats_[4].get(), link_stats_[5].get()};
}

void SwitchPath::handle(const link::Incoming& datagram, Nanoseconds now) {
  wire::Packet packet;
  const auto [job, is_from_above] = filter_.admit(datagram.bytes, datagram.from, packet);
  if (job == nullptr) return;
  JobOutbox outbox(*this, *job);
  const Verdict verdict = is_from_above ? job->aggregator.on_packet_from_above(packet, outbox)
                                        : job->aggregator.on_packet(packet, now, outbox);
  filter_.count(*job, verdict, packet.header, datagram.bytes.size(), now, is_from_above);
}

void SwitchPath::queue(ShardJob& job, link::Address worker, std::span<const std::byte> packet) {
  if (backlog_.size() == kBacklogMost) return;
  backlog_.push_back({worker, packet, {}, {}});
  job.counters.sent_bytes.add(packet.size());
}

void SwitchPath::queue_notice(link::Address to, std::span<const std::byte> packet) {
  if (notices_.size() == kNoticesMost) return;  // whoever waits for it asks again
  Notice& notice = notices_.emplace_back();
  notice.to = to;
  std::copy(packet.begin(), packet.end(), notice.bytes.begin());
  notice.size_bytes = packet.size();
}

// Results first to the one worker, then to the next: equally long datagrams to one address cross the kernel as one.
void SwitchPath::flush() {
  for (ShardJob* const job : busy_) {
    for (std::uint16_t place = 0; place < job->admission.workers.size(); ++place) {
      const bool is_switch = job->admission.tree.is_switch(place);  // its shards have an address each
      for (const auto& outcome : job->results) {
        const auto packet = outcome.receivers.have(place) ? outcome.result : outcome.done;
        queue(*job,
              is_switch ? job->admission.address_of(place, wire::chunk_in(packet)) : job->admission.workers[place],
              packet);
      }
    }
    job->counters.results_sent.add(job->results.size() * job->admission.workers.size());
    job->results.clear();
  }
  busy_.clear();
  send_notices();
  send_backlog();
}

// Short and urgent: they go ahead of results, and are never kept, since the workers' probes ask again.
void SwitchPath::send_notices() {
  if (notices_.empty()) return;
  sending_.clear();
  for (const Notice& notice : notices_) {
    sending_.push_back({notice.to, std::span(notice.bytes).first(notice.size_bytes), {}, {}});
  }
  link_->send(sending_);
  notices_.clear();
}

void SwitchPath::send_backlog() {
  if (backlog_.empty()) return;
  const std::size_t taken = link_->send(backlog_);
  backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(taken));
}

void SwitchPath::publish_stats() {
  const link::LinkStats& stats = link_->stats();
  const std::array<std::uint64_t, 6> values{stats.sent_packets,   stats.sent_bytes,  stats.received_packets,
                                            stats.received_bytes, stats.send_errors, stats.system_calls};
  for (std::size_t i = 0; i < values.size(); ++i) link_stats_[i].add(values[i] - link_stats_[i].get());
}

}  // namespace netfold::switching

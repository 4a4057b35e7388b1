#include "switch/data_plane.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/names.h"
#include "base/thread.h"
#include "link/pcap_writer.h"
#include "link/udp.h"
#include "switch/job_shards.h"
#include "switch/shard.h"

namespace netfold::switching {
namespace {

class Shards final : public DataPlane {
 public:
  explicit Shards(std::vector<std::unique_ptr<Shard>> shards)
      : jobs_(static_cast<std::uint16_t>(shards.size()),
              [this](std::uint16_t shard, std::uint16_t job, ShardJob* part) { shards_[shard]->place(job, part); }),
        shards_(std::move(shards)) {
    for (const auto& shard : shards_) ports_.push_back(shard->path().link().local_address().port);
  }

  const std::vector<std::uint16_t>& udp_ports() const override { return ports_; }

  void admit(Admission admission) override { jobs_.admit(admission); }
  void evict(std::uint16_t job) override { jobs_.evict(job); }
  JobCounters counters(std::uint16_t job) const override { return jobs_.counters(job); }

  std::vector<std::uint64_t> drops() const override {
    return sum_of_drops(shards_, [](const Shard& shard, DropReason reason) { return shard.path().drops(reason); });
  }

  link::LinkStats link_stats() const override {
    link::LinkStats sum;
    for (const auto& shard : shards_) {
      const link::LinkStats stats = shard->path().link_stats();
      sum.sent_packets += stats.sent_packets;
      sum.sent_bytes += stats.sent_bytes;
      sum.received_packets += stats.received_packets;
      sum.received_bytes += stats.received_bytes;
      sum.send_errors += stats.send_errors;
      sum.system_calls += stats.system_calls;
    }
    return sum;
  }

  std::vector<ThreadUse> threads() const override {
    std::vector<ThreadUse> all;
    for (const auto& shard : shards_) all.push_back(shard->use());
    return all;
  }

 private:
  JobShards<ShardJob> jobs_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::uint16_t> ports_;
};

Result<std::unique_ptr<link::Link>> open_link(const DataPlaneOptions& options, std::uint16_t shard) {
  link::UdpOptions udp;
  udp.bind = options.bind;
  udp.road.dscp = options.dscp;
  udp.bind.port = options.first_port == 0 ? 0 : static_cast<std::uint16_t>(options.first_port + shard);
  auto opened = link::open_udp(udp);
  if (!opened || options.pcap_path.empty()) return opened;
  const link::Address local = (*opened)->local_address();
  return link::capture(std::move(*opened), fmt::format("{}.{}", options.pcap_path, shard), local);
}

}  // namespace

Result<std::unique_ptr<DataPlane>> DataPlane::start(DataPlaneOptions options, const OnMismatch& on_mismatch) {
  if (!std::has_single_bit(options.shards)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} switch threads: their number must be a power of two (1, 2, 4, ...)", options.shards));
  }
  std::vector<std::unique_ptr<Shard>> shards;
  for (std::uint16_t index = 0; index < options.shards; ++index) {
    auto link = open_link(options, index);
    if (!link) return tl::unexpected(link.error());
    const int core = index < options.cores.size() ? options.cores[index] : kAnyCore;
    shards.push_back(std::make_unique<Shard>(index, std::move(*link), options.jobs_max, core, on_mismatch));
  }
  return std::make_unique<Shards>(std::move(shards));
}

std::size_t DataPlane::memory_bytes(const wire::Lease& lease) {
  return lease.shards * Aggregator::memory_bytes(lease);
}

JobCounters& JobCounters::operator+=(const JobCounters& other) {
  contributions += other.contributions;
  folded_chunks += other.folded_chunks;
  results_sent += other.results_sent;
  results_resent += other.results_resent;
  missing_sent += other.missing_sent;
  probes += other.probes;
  received_bytes += other.received_bytes;
  sent_bytes += other.sent_bytes;
  duplicates += other.duplicates;
  stale += other.stale;
  signals += other.signals;
  up_sums += other.up_sums;
  up_resent += other.up_resent;
  up_sent_bytes += other.up_sent_bytes;
  up_received_bytes += other.up_received_bytes;
  ranks.resize(std::max(ranks.size(), other.ranks.size()));
  for (std::size_t rank = 0; rank < other.ranks.size(); ++rank) ranks[rank] += other.ranks[rank];
  return *this;
}

const char* name_of(DropReason reason) {
  constexpr const char* kNames[]{"short",           "version",     "kind",           "format",   "flags",   "length",
                                 "unknown_job",     "stale_epoch", "unknown_worker", "stranger", "bad_tag", "bad_slot",
                                 "malformed_block", "stale_chunk", "duplicate",      "mismatch", "no_room"};
  return name_in(kNames, reason);
}

}  // namespace netfold::switching

#include "protocol/world.h"

#include <algorithm>

namespace netfold::tests {
namespace {

constexpr std::uint16_t kJob = 3;
constexpr std::uint16_t kSwitchPort = 1;
constexpr std::uint16_t kWorkerPort = 1000, kHostPort = 999;

}  // namespace

World::World(WorldOptions options) {
  lease_.job = kJob;
  lease_.epoch = options.epoch;
  lease_.world = options.world;
  lease_.slots = options.slots;
  lease_.shards = options.shards;
  lease_.payload_bytes = options.payload_bytes;
  lease_.bfp = options.bfp;
  lease_.first_chunk = options.first_chunk;
  if (options.tagged) lease_.keys.emplace(wire::TagKey{std::byte{7}, std::byte{9}}, lease_.first_chunk);

  switching::Admission admission{lease_, {}, {}};
  if (options.host) admission.host = link::Address{0, kHostPort};
  std::vector<link::Address> addresses;
  for (std::uint16_t rank = 0; rank < options.world; ++rank) {
    admission.workers.push_back({0, static_cast<std::uint16_t>(kWorkerPort + rank)});
  }
  const auto on_mismatch = [this](std::uint16_t, std::uint16_t, int, std::string what) {
    mismatches_.push_back(std::move(what));
  };
  if (options.frames) {
    std::vector<std::unique_ptr<link::Link>> links;
    for (std::uint16_t index = 0; index < options.shards; ++index) {
      links.push_back(network_.open(static_cast<std::uint16_t>(kSwitchPort + index)));
    }
    frames_ = std::make_unique<FrameSwitch>(std::move(links), admission, on_mismatch);
  }
  for (std::uint16_t index = 0; index < options.shards; ++index) {
    const auto port = static_cast<std::uint16_t>(kSwitchPort + index);
    addresses.push_back({0, port});
    if (frames_) continue;
    jobs_.push_back(std::make_unique<switching::ShardJob>(admission, index));
    shards_.push_back(std::make_unique<switching::SwitchPath>(network_.open(port), 8, on_mismatch));
    shards_.back()->place(kJob, jobs_.back().get());
  }
  for (std::uint16_t rank = 0; rank < options.world; ++rank) {
    Worker worker;
    link::Faults faults = options.faults;
    faults.seed = options.seed * 1000 + rank;
    worker.link = link::inject_faults(network_.open(static_cast<std::uint16_t>(kWorkerPort + rank)), faults,
                                      [this] { return time_; });
    worker.stream = std::make_unique<group::DataPath>(lease_, rank, group::WindowOptions{}, *worker.link, addresses);
    workers_.push_back(std::move(worker));
  }
  if (options.host) {
    link::Faults faults = options.faults;
    faults.seed = options.seed * 1000 + options.world;
    host_link_ = link::inject_faults(network_.open(kHostPort), faults, [this] { return time_; });
    host_ = std::make_unique<group::ObserverPath>(lease_, *host_link_, addresses);
  }
}

void World::submit(std::uint16_t rank, const group::CollectiveRequest& request) {
  Worker& worker = workers_[rank];
  auto operation = std::make_unique<group::Operation>(++worker.submitted, request, lease_, rank);
  if (host_ && rank == 0) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + operation->chunks());
    host_->expect(ends_.size(), operation->chunks(), time_);
  }
  worker.stream->submit(std::move(operation), time_);
}

void World::pump_host() {
  if (!host_) return;
  host_->pump(time_);
  signalled_ += host_->take_finished().size();
  std::uint64_t folded = 0;
  for (std::uint16_t shard = 0; shard < lease_.shards; ++shard) folded += job(shard).counters.folded_chunks.get();
  if (signalled_ > 0 && folded < ends_[signalled_ - 1]) signals_too_early_ = true;
}

std::uint64_t World::drops(switching::DropReason reason) const {
  std::uint64_t sum = frames_ ? frames_->drops(reason) : 0;
  for (const auto& shard : shards_) sum += shard->drops(reason);
  return sum;
}

bool World::is_done() const {
  if (signalled_ < ends_.size()) return false;
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.is_stopped || worker.finished == worker.submitted; });
}

// One round of all workers and the switch; true if packets moved.
bool World::step() {
  const auto moved = [&] {
    std::uint64_t sum = host_ ? host_link_->stats().sent_packets + host_link_->stats().received_packets : 0;
    for (const Worker& worker : workers_) {
      const link::LinkStats& stats = worker.link->stats();
      sum += stats.sent_packets + stats.received_packets;
    }
    return sum;
  };
  const std::uint64_t before = moved();
  for (Worker& worker : workers_) {
    if (worker.is_stopped) continue;
    worker.stream->pump(time_);
    worker.finished += worker.stream->take_finished().size();
  }
  pump_switch();
  pump_host();
  return moved() != before;
}

void World::pump_switch() {
  for (const auto& shard : shards_) shard->pump(time_);
  if (frames_) frames_->pump(time_);
}

bool World::run(Nanoseconds limit) {
  const Nanoseconds end = time_ + limit;
  while (!is_done()) {
    if (time_ > end) return false;
    if (step()) {
      time_ += 10 * kMicrosecond;  // a round trip through this network
      continue;
    }
    Nanoseconds next = host_ ? std::min(host_->deadline(), host_link_->deadline()) : kNever;
    for (const Worker& worker : workers_) {
      if (!worker.is_stopped) next = std::min(next, worker.stream->deadline());
    }
    if (is_done()) break;
    if (next == kNever || next > end) return false;
    time_ = std::max(time_ + kMicrosecond, next);
  }
  return !signals_too_early_;
}

}  // namespace netfold::tests

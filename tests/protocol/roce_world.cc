#include "protocol/roce_world.h"

#include <algorithm>
#include <cassert>

namespace netfold::tests {
namespace {

constexpr std::uint16_t kRoceSwitchPort = 0, kFirstWorkerPort = 1000;

}  // namespace

RoceWorld::RoceWorld(RoceWorldOptions options)
    : options_(options),
      prng_(options.seed),
      wire_(network_.open(kRoceSwitchPort)),
      switch_(static_cast<link::PortNumber>(options.world * options.jobs),
              {.threads = options.threads, .roce = options.roce}) {
  assert(switch_.ports() <= switching::AggregationConfig::kPortsMax);
  workers_.resize(switch_.ports());
  for (std::uint16_t job = 0; job < options.jobs; ++job) {
    const std::uint32_t ports = ((1u << options.world) - 1) << (job * options.world);
    [[maybe_unused]] const auto set = settings().set(job, {ports, true});
    assert(set);
    open_job(job, 1);
  }
}

void RoceWorld::open_job(std::uint16_t job, std::uint16_t epoch) {
  const std::size_t first = std::size_t{job} * options_.world;
  for (std::uint16_t rank = 0; rank < options_.world; ++rank) {
    const auto place = static_cast<std::uint16_t>(kFirstWorkerPort + first + rank);
    link::Faults faults = options_.faults;
    faults.seed = prng_.next();
    auto cable = link::inject_faults(network_.open(place), faults, [this] { return time_; });
    group::PacketChannelOptions channel;
    channel.mac = 0x020000000000 + place;
    if (options_.version == wire::roce::Version::kV2) channel.ip = 0x0a000000u + place;
    channel.queue_pair = next_queue_pair_;
    channel.first_psn = rank == 0 ? options_.first_psn : static_cast<std::uint32_t>(prng_.below(1 << 24));
    channel.key = static_cast<std::uint32_t>(prng_.next());
    channel.sender.window_packets = options_.window_packets;
    next_queue_pair_ += 2;
    Worker& worker = workers_[first + rank];
    worker.session.reset();
    worker.channel = std::make_unique<group::PacketChannel>(std::move(cable), channel);
    worker.session =
        std::make_unique<group::RoceSession>(group::RoceJobOptions{job, epoch, rank, options_.world, options_.bfp,
                                                                   options_.message_packets, options_.one_way},
                                             *worker.channel, options_.timeout);
    worker.error.reset();
  }
  for (std::uint16_t rank = 0; rank < options_.world; ++rank) {
    const auto& right = workers_[first + (rank + 1) % options_.world].channel->card();
    const auto& left = workers_[first + (rank + options_.world - 1) % options_.world].channel->card();
    [[maybe_unused]] const auto connected = workers_[first + rank].channel->connect(right, left);
    assert(connected);
  }
}

void RoceWorld::restart_job(std::uint16_t job, std::uint16_t epoch) {
  for (std::uint16_t rank = 0; rank < options_.world; ++rank) {
    Worker& worker = workers_[std::size_t{job} * options_.world + rank];
    worker.session->abort({ErrorCode::kSystem, "stopped"}, time_);
    worker.session.reset();
    worker.channel.reset();
    worker.is_stopped = false;
  }
  open_job(job, epoch);
}

void RoceWorld::submit(std::size_t worker, const group::CollectiveRequest& request) {
  workers_[worker].session->submit(1, request, nullptr);
}

bool RoceWorld::is_done() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.is_stopped || worker.session->is_idle(); });
}

// Each worker is done, or has given up.
bool RoceWorld::has_ended() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return worker.is_stopped || worker.session->is_idle() || worker.error;
  });
}

bool RoceWorld::step_switch() {
  bool has_moved = false;
  for (const link::Incoming& frame : wire_->receive(1u << 20)) {
    port(static_cast<std::size_t>(frame.from.port - kFirstWorkerPort)).arrive(frame.bytes);
    has_moved = true;
  }
  has_moved |= switch_.settle(time_) > 0;
  for (const auto& [port, frame] : switch_.fetch()) {
    const link::Outgoing out{{0, static_cast<std::uint16_t>(kFirstWorkerPort + port)}, frame, {}, {}};
    wire_->send(std::span(&out, 1));
    has_moved = true;
  }
  return has_moved;
}

bool RoceWorld::step() {
  bool has_moved = step_switch();
  for (Worker& worker : workers_) {
    if (worker.is_stopped || worker.error) continue;
    const std::uint64_t received = worker.channel->link().stats().received_packets;
    const std::uint64_t sent = worker.channel->link().stats().sent_packets;
    if (const auto pumped = worker.session->pump(time_); !pumped) worker.error = pumped.error();
    has_moved |= worker.channel->link().stats().received_packets != received ||
                 worker.channel->link().stats().sent_packets != sent;
  }
  return has_moved;
}

bool RoceWorld::run(Nanoseconds limit) {
  const Nanoseconds end = time_ + limit;
  while (time_ < end && !has_ended()) {
    if (step()) {
      time_ += kMicrosecond;
      continue;
    }
    Nanoseconds deadline = time_ + kMillisecond;
    for (const Worker& worker : workers_) {
      if (!worker.is_stopped) deadline = std::min(deadline, worker.channel->deadline());
    }
    time_ = std::max(time_ + kMicrosecond, deadline);
  }
  return is_done();
}

std::vector<std::byte> message_frame(const group::QpInfo& self, const group::QpInfo& peer,
                                     const wire::roce::AggregationHeader& header, std::uint64_t packets, std::byte fill,
                                     bool is_short) {
  std::vector<std::byte> message(wire::roce::kAggregationBytes + header.length_bytes, fill);
  std::ranges::copy(wire::roce::emit(header), message.begin());
  group::RoceSender sender(self, peer);
  sender.post(header.message, message, 0, is_short);
  std::vector<std::byte> frame(group::RoceSender::kFrameBytesMax);
  std::size_t size_bytes = 0;
  for (; packets > 0; --packets) {
    if (const std::size_t next = sender.next(frame, 0)) size_bytes = next;
  }
  frame.resize(size_bytes);
  return frame;
}

}  // namespace netfold::tests

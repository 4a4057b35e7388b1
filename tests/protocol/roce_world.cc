#include "protocol/roce_world.h"

#include <algorithm>
#include <cassert>

namespace netfold::tests {
namespace {

constexpr std::uint16_t kRoceSwitchPort = 0, kFirstWorkerPort = 1000, kFirstBelow = 2000, kFirstAbove = 3000;
constexpr std::size_t kLongFrame = 100;  // bytes: longer than an acknowledgement

}  // namespace

RoceWorld::RoceWorld(RoceWorldOptions options)
    : options_(options), prng_(options.seed), wire_(network_.open(kRoceSwitchPort)) {
  assert(options.world % workers_of_leaf() == 0);
  workers_.resize(std::size_t{options.world} * options.jobs);
  open_switches();
  for (std::uint16_t job = 0; job < options.jobs; ++job) open_job(job, 1);
}

std::uint16_t RoceWorld::workers_of_leaf() const {
  return options_.levels.empty() ? options_.world : static_cast<std::uint16_t>(options_.world / options_.levels[0]);
}

void RoceWorld::open_switches() {
  std::vector<std::uint16_t> levels = options_.levels;
  levels.push_back(1);
  std::uint16_t below = workers_of_leaf();
  std::size_t next_level = 0;  // the number of its first switch
  for (std::size_t level = 0; level < levels.size(); ++level) {
    next_level += levels[level];
    const bool is_top = level + 1 == levels.size();
    const std::uint16_t mates = is_top ? 1 : static_cast<std::uint16_t>(levels[level] / levels[level + 1]);
    for (std::uint16_t i = 0; i < levels[level]; ++i) {
      const Seat above{next_level + i / mates, static_cast<link::PortNumber>(i % mates)};
      open_switch(below, level == 0, is_top ? std::nullopt : std::optional(above));
    }
    below = mates;
  }
}

// Each job has ports of its own at a leaf. Between switches all jobs take the same way.
void RoceWorld::open_switch(std::uint16_t below, bool is_leaf, std::optional<Seat> above) {
  const auto uplink = static_cast<link::PortNumber>(is_leaf ? below * options_.jobs : below);
  const auto ports = static_cast<link::PortNumber>(uplink + (above ? 1 : 0));
  assert(ports <= switching::AggregationConfig::kPortsMax);
  const Seat place{switches_.size(), uplink};
  switches_.push_back(std::make_unique<switching::MemorySwitch>(
      ports, switching::EthernetSwitchOptions{.threads = options_.threads, .roce = options_.roce}));
  for (std::uint16_t job = 0; job < options_.jobs; ++job) {
    const std::uint32_t mask = ((1u << below) - 1) << (is_leaf ? job * below : 0);
    [[maybe_unused]] const auto set =
        switches_.back()->jobs_settings().set(job, {mask, true, above ? uplink : link::kNoPort});
    assert(set);
  }
  if (!above) return;
  link::Faults faults = options_.faults;
  faults.seed = prng_.next();
  const auto number = static_cast<std::uint16_t>(place.of_switch);
  auto end_below = link::inject_faults(network_.open(static_cast<std::uint16_t>(kFirstBelow + number)), faults,
                                       [this] { return time_; });
  cables_.push_back(
      {place, *above, std::move(end_below), network_.open(static_cast<std::uint16_t>(kFirstAbove + number))});
}

RoceWorld::Seat RoceWorld::seat_of(std::size_t worker) const {
  const std::size_t job = worker / options_.world, rank = worker % options_.world, mates = workers_of_leaf();
  return {rank / mates, static_cast<link::PortNumber>(job * mates + rank % mates)};
}

std::size_t RoceWorld::worker_at(Seat seat) const {
  const std::size_t mates = workers_of_leaf(), job = seat.port / mates;
  return job * options_.world + seat.of_switch * mates + seat.port % mates;
}

std::size_t RoceWorld::buffers_in_use() const {
  std::size_t all = 0;
  for (const auto& each : switches_) all += each->buffers_in_use();
  return all;
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

bool RoceWorld::step_switches() {
  bool has_moved = false;
  const auto arrive = [&](Seat seat, std::span<const std::byte> bytes) {
    switches_[seat.of_switch]->port(seat.port).arrive(bytes);
    has_moved = true;
  };
  for (const link::Incoming& frame : wire_->receive(1u << 20)) {
    arrive(seat_of(static_cast<std::size_t>(frame.from.port - kFirstWorkerPort)), frame.bytes);
  }
  for (const Cable& cable : cables_) {
    for (const auto& frame : cable.end_below->receive(1u << 20)) arrive(cable.below, frame.bytes);
    for (const auto& frame : cable.end_above->receive(1u << 20)) arrive(cable.above, frame.bytes);
  }
  for (std::size_t number = 0; number < switches_.size(); ++number) {
    has_moved |= switches_[number]->settle(time_) > 0;
    for (const auto& [port, frame] : switches_[number]->fetch()) {
      send({number, port}, frame);
      has_moved = true;
    }
  }
  return has_moved;
}

void RoceWorld::send(Seat from, const std::vector<std::byte>& frame) {
  link::Outgoing out{{0, 0}, frame, {}, {}};
  for (std::size_t number = 0; number < cables_.size(); ++number) {
    Cable& cable = cables_[number];
    if (from == cable.below) {
      out.to.port = static_cast<std::uint16_t>(kFirstAbove + number);
      cable.long_frames_up += frame.size() > kLongFrame ? 1 : 0;
      return cable.end_below->send(std::span(&out, 1)), void();
    }
    if (from == cable.above) {
      out.to.port = static_cast<std::uint16_t>(kFirstBelow + number);
      return cable.end_above->send(std::span(&out, 1)), void();
    }
  }
  out.to.port = static_cast<std::uint16_t>(kFirstWorkerPort + worker_at(from));
  wire_->send(std::span(&out, 1));
}

bool RoceWorld::step() {
  bool has_moved = step_switches();
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

void draw_network(Prng& prng, RoceWorldOptions& options) {
  options.window_packets = static_cast<std::uint32_t>(4 + prng.below(509));
  options.first_psn = prng.chance(0.5) ? static_cast<std::uint32_t>(prng.below(1 << 24))
                                       : 0xffffff - static_cast<std::uint32_t>(prng.below(40));
  options.faults = {.loss = prng.unit() * 0.1,
                    .duplicate = prng.unit() * 0.1,
                    .reorder = prng.unit() * 0.2,
                    .hold_max = static_cast<Nanoseconds>(prng.below(20)) * kMillisecond};
  options.version = prng.chance(0.5) ? wire::roce::Version::kV2 : wire::roce::Version::kV1;
  if (prng.chance(0.3)) options.message_packets = static_cast<std::uint32_t>(2 + prng.below(127));
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

#include "protocol/star.h"

#include <algorithm>
#include <utility>

namespace netfold::tests {
namespace {

constexpr std::uint16_t kStarPort = 0;
constexpr std::size_t kEthernetBytes = 14 + wire::kUdpIpBytes;  // as the lab's shaper counts
constexpr Nanoseconds kWakeUp = 5 * kMicrosecond;
constexpr std::uint16_t kPayloadBytes = 1456;
constexpr const char* kInterface = "eth0";  // of the switch's machine

}  // namespace

class Star::StarLink final : public link::Link {
 public:
  StarLink(Star& star, std::uint16_t port) : star_(star), port_(port) {}

  std::size_t send(std::span<const link::Outgoing> batch) override {
    for (const link::Outgoing& out : batch) {
      std::vector<std::byte> bytes;
      for (const auto piece : {out.head, out.body, out.tail}) bytes.insert(bytes.end(), piece.begin(), piece.end());
      ++stats_.sent_packets;
      stats_.sent_bytes += bytes.size();
      star_.transmit(local_address(), out.to, std::move(bytes));
    }
    return batch.size();
  }
  std::span<const link::Incoming> receive(std::size_t most) override {
    auto& inbox = star_.nodes_[port_].inbox;
    const std::size_t taken = std::min(most, inbox.size());
    held_.assign(std::make_move_iterator(inbox.begin()),
                 std::make_move_iterator(inbox.begin() + static_cast<std::ptrdiff_t>(taken)));
    inbox.erase(inbox.begin(), inbox.begin() + static_cast<std::ptrdiff_t>(taken));
    incoming_.clear();
    for (const Datagram& datagram : held_) {
      incoming_.push_back({datagram.from, datagram.bytes});
      ++stats_.received_packets;
      stats_.received_bytes += datagram.bytes.size();
    }
    return incoming_;
  }
  int descriptor() const override { return -1; }
  link::Address local_address() const override { return {0, port_}; }
  const link::LinkStats& stats() const override { return stats_; }

 private:
  Star& star_;
  std::uint16_t port_;
  std::vector<Datagram> held_;
  std::vector<link::Incoming> incoming_;
  link::LinkStats stats_;
};

Star::Star(StarOptions options) : options_(options), prng_(options.seed) {
  nodes_.resize(1u + std::size_t{options.jobs} * options.world);
  for (Node& node : nodes_)
    node.to_middle.bytes_a_second = node.from_middle.bytes_a_second = options.worker_mbit_s / 8e-6;
  set_switch_rate(options.switch_mbit_s);
  switch_ = std::make_unique<switching::SwitchPath>(std::make_unique<StarLink>(*this, kStarPort), options.jobs,
                                                    [](auto, auto, auto, const auto&) {});
  nodes_[kStarPort].on_arrival = [this] { switch_->pump(timeline_.now()); };
  for (std::uint16_t index = 0; index < options.jobs; ++index) {
    auto job = std::make_unique<Job>();
    job->lease.job = index;
    job->lease.epoch = 1;
    job->lease.world = options.world;
    job->lease.slots = 1024;
    job->lease.payload_bytes = kPayloadBytes;
    switching::Admission admission{job->lease, {}, {}};
    const auto first = static_cast<std::uint16_t>(1 + index * options.world);
    for (std::uint16_t rank = 0; rank < options.world; ++rank) {
      admission.workers.push_back({0, static_cast<std::uint16_t>(first + rank)});
    }
    job->at_switch = std::make_unique<switching::ShardJob>(admission, 0);
    switch_->place(index, job->at_switch.get());
    job->workers.resize(options.world);
    for (std::uint16_t rank = 0; rank < options.world; ++rank) {
      Worker& worker = job->workers[rank];
      worker.link = std::make_unique<StarLink>(*this, static_cast<std::uint16_t>(first + rank));
      worker.path = std::make_unique<group::DataPath>(job->lease, rank, group::WindowOptions{}, *worker.link,
                                                      std::vector{link::Address{0, kStarPort}});
      nodes_[first + rank].on_arrival = [this, job = job.get(), &worker] { pump(*job, worker); };
      // Each has joined at a time of its own, some while before the first tensor.
      timeline_.after(static_cast<Nanoseconds>(prng_.below(10 * kMillisecond)),
                      [this, job = job.get(), &worker] { pump(*job, worker); });
    }
    jobs_.push_back(std::move(job));
  }
  while (timeline_.step(timeline_.now() + 20 * kMillisecond)) continue;
  look_at_jobs();
}

Star::~Star() = default;

void Star::set_switch_rate(double mbit_s) {
  for (Wire* wire : {&nodes_[kStarPort].to_middle, &nodes_[kStarPort].from_middle})
    wire->bytes_a_second = mbit_s / 8e-6;
}

void Star::set_rank_rate(std::uint16_t rank, double mbit_s) {
  for (Wire* wire : {&nodes_[1u + rank].to_middle, &nodes_[1u + rank].from_middle})
    wire->bytes_a_second = mbit_s / 8e-6;
}

void Star::submit(std::uint16_t index, std::size_t count, schedule::Collective collective) {
  Job& job = *jobs_[index];
  const std::size_t part = count / options_.world;
  for (std::uint16_t rank = 0; rank < job.workers.size(); ++rank) {
    Worker& worker = job.workers[rank];
    worker.tensors.push_back(std::make_unique<std::vector<float>>(count, 1.0f));
    float* const data = worker.tensors.back()->data();
    group::CollectiveRequest request{data, data, count, numbers::ElementType::kFp32, numbers::Format::kFp32, false};
    request.collective = collective;
    if (collective != schedule::Collective::kAllReduce) request.count = part;
    if (collective == schedule::Collective::kReduceScatter) request.out = data + rank * part;
    if (collective == schedule::Collective::kAllGather) request.in = data + rank * part;
    worker.path->submit(std::make_unique<group::Operation>(++worker.submitted, request, job.lease, rank),
                        timeline_.now());
    pump(job, worker);
  }
}

void Star::run_for(Nanoseconds time) {
  const Nanoseconds end = timeline_.now() + time;
  while (timeline_.step(end)) continue;
}

void Star::look_at_jobs() {
  timeline_.after(switching::FairShares::kPeriod, [this] { look_at_jobs(); });
  std::map<switching::FairShares::Job, switching::FairShares::Share> shares;
  std::map<switching::LateRanks::Job, std::vector<std::uint64_t>> came_last;
  for (const auto& job : jobs_) {
    const switching::JobCounters counters = job->at_switch->snapshot();
    shares[job->lease.job] = {{.up = counters.received_bytes, .down = counters.sent_bytes}, kInterface, options_.world};
    for (const auto& rank : counters.ranks) came_last[job->lease.job].push_back(rank.came_last);
  }
  const link::LinkStats own = switch_->link_stats();
  const std::map<std::string, switching::FairShares::Interface> interfaces{
      {kInterface,
       {.carried = {nodes_[kStarPort].from_middle.carried_bytes, nodes_[kStarPort].to_middle.carried_bytes},
        .own = {own.received_bytes + own.received_packets * kEthernetBytes,
                own.sent_bytes + own.sent_packets * kEthernetBytes}}}};
  for (const auto& [job, share] : shares_.look(shares, interfaces, timeline_.now())) {
    for (Worker& each : jobs_[job]->workers) each.path->on_share(share, timeline_.now());
  }
  for (const auto& [job, place] : late_.look(came_last)) jobs_[job]->workers[place].path->catch_up();
}

bool Star::run_until_done(Nanoseconds limit) {
  const Nanoseconds end = timeline_.now() + limit;
  const auto is_done = [&] {
    return std::ranges::all_of(jobs_, [](const auto& job) {
      return std::ranges::all_of(job->workers, [](const Worker& each) { return each.finished == each.submitted; });
    });
  };
  while (!is_done()) {
    if (!timeline_.step(end)) return false;
  }
  return true;
}

group::DataPathStats Star::stats(std::uint16_t job, std::uint16_t rank) const {
  return jobs_[job]->workers[rank].path->stats();
}

Nanoseconds Star::bound(std::size_t count) const {
  const std::size_t chunks = (count * 4 + kPayloadBytes - 1) / kPayloadBytes;
  const double bytes = static_cast<double>(count * 4 + chunks * (wire::kHeaderBytes + kEthernetBytes));
  const double through_switch = bytes * options_.world * options_.jobs / nodes_[kStarPort].to_middle.bytes_a_second;
  return from_seconds(std::max(through_switch, bytes / nodes_[1].to_middle.bytes_a_second));
}

std::optional<Nanoseconds> Star::pass(Wire& wire, std::size_t bytes) {
  const Nanoseconds now = timeline_.now();
  const double waiting = wire.busy_until > now ? to_seconds(wire.busy_until - now) * wire.bytes_a_second : 0;
  if (waiting + static_cast<double>(bytes) > static_cast<double>(options_.queue_bytes)) {
    ++dropped_;
    return std::nullopt;
  }
  if (prng_.chance(options_.loss)) return std::nullopt;
  wire.busy_until = std::max(now, wire.busy_until) + from_seconds(static_cast<double>(bytes) / wire.bytes_a_second);
  return wire.busy_until + options_.latency;
}

void Star::add_tcp(Way way) {
  send_tcp(way == Way::kUp ? nodes_[kStarPort].from_middle : nodes_[kStarPort].to_middle);
}

void Star::send_tcp(Wire& wire) {
  while (tcp_.may_send()) {
    const std::uint64_t number = tcp_.on_send();
    const auto there = pass(wire, CubicFlow::kPacketBytes);
    const Nanoseconds known = there.value_or(std::max(wire.busy_until, timeline_.now()) + options_.latency);
    timeline_.at(known + options_.latency, [this, &wire, number, is_lost = !there] {
      if (!is_lost) wire.carried_bytes += CubicFlow::kPacketBytes;
      is_lost ? tcp_.on_loss(number, timeline_.now()) : tcp_.on_arrival(timeline_.now());
      send_tcp(wire);
    });
  }
}

Star::Node& Star::links_of(std::uint16_t port) {
  if (!options_.shares_links || port == kStarPort) return nodes_[port];
  return nodes_[1u + (port - 1u) % options_.world];
}

void Star::transmit(link::Address from, link::Address to, std::vector<std::byte> bytes) {
  const std::size_t size = bytes.size() + kEthernetBytes;
  const auto at_middle = pass(links_of(from.port).to_middle, size);
  if (!at_middle) return;
  timeline_.at(*at_middle, [this, from, to, size, bytes = std::move(bytes)]() mutable {
    links_of(from.port).to_middle.carried_bytes += size;
    const auto there = pass(links_of(to.port).from_middle, size);
    if (!there) return;
    timeline_.at(*there, [this, from, to, size, bytes = std::move(bytes)]() mutable {
      links_of(to.port).from_middle.carried_bytes += size;
      arrive(to.port, {from, std::move(bytes)});
    });
  });
}

void Star::arrive(std::uint16_t port, Datagram datagram) {
  Node& node = nodes_[port];
  node.inbox.push_back(std::move(datagram));
  if (std::exchange(node.is_woken, true)) return;
  timeline_.after(kWakeUp, [&node] {
    node.is_woken = false;
    node.on_arrival();
  });
}

void Star::pump(Job& job, Worker& worker) {
  worker.path->pump(timeline_.now());
  const std::size_t finished = worker.path->take_finished().size();
  worker.finished += finished;
  if (finished > 0) job.done_at = timeline_.now();
  const Nanoseconds deadline = worker.path->deadline();
  if (deadline == kNever || deadline == worker.wakes_at) return;
  worker.wakes_at = deadline;
  timeline_.at(deadline, [this, &job, &worker, deadline] {
    if (worker.wakes_at == deadline) pump(job, worker);
  });
}

}  // namespace netfold::tests

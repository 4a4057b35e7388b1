#include "switch/endpoints.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "base/prng.h"
#include "group/via_roce/roce_endpoint.h"
#include "numbers/fold.h"
#include "switch/greeting.h"
#include "switch/switch_device.h"
#include "switch/verdicts.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

// Times for a network with microseconds of latency. On a machine with milliseconds of scheduling they are a hundred
// times longer.
constexpr group::RoceSenderOptions kSender{.window_packets = roce::kWindowPackets,
                                           .timeout_min = 30 * kMicrosecond,
                                           .timeout_start = 100 * kMicrosecond,
                                           .timeout_max = kMillisecond};
constexpr Ticks kTimerPeriod = kMicrosecond * kTicksPerNs;
constexpr Ticks kStallMax = 10 * kMicrosecond * kTicksPerNs;
constexpr Ticks kPatience = 20 * kMillisecond * kTicksPerNs;

struct Worker {
  std::unique_ptr<group::RoceEndpoint> endpoint;
  std::array<std::vector<std::byte>, roce::kWindowMessages> posted_bytes;
  std::uint32_t posted = 0, received = 0;
};

class Endpoints {
 public:
  explicit Endpoints(const EndpointsRun& run);
  nlohmann::json run();

 private:
  void connect(unsigned rank);
  void progress(unsigned rank);
  bool is_right(unsigned rank, std::uint32_t message, std::span<const std::byte> bytes);
  const std::vector<std::byte>& sum(std::uint32_t message);
  bool is_done() const;
  Nanoseconds time() const { return static_cast<Nanoseconds>(device_.now() / kTicksPerNs); }

  EndpointsRun options_;
  Prng prng_;
  SwitchDevice device_;
  SoftwareSwitch software_{SwitchDevice::kPorts};  // only for its counters' names: it gets no frames
  Job job_;
  numbers::Folder folder_;
  std::vector<Worker> workers_;
  std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> sums_;  // the latest, by message
  Ticks last_arrival_ = 0;
  std::uint64_t wrong_ = 0, lost_ = 0, whole_ = 0;
};

JobOptions on_all_ports(JobOptions job) {
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) job.ports.push_back(port);
  return job;
}

Endpoints::Endpoints(const EndpointsRun& run)
    : options_(run),
      prng_(run.seed),
      job_(on_all_ports(run.job)),
      folder_(roce::kPathMtu, SwitchDevice::kPorts),
      workers_(job_.world()),
      sums_(2 * roce::kWindowMessages) {
  configure(device_, nullptr, run.job.format.format != numbers::Format::kInt32, (1u << job_.world()) - 1);
  if (run.pauses) enable_pause(device_);
  greet(device_, job_, nullptr);
  std::vector<group::QpPairInfo> cards(job_.world());
  for (unsigned rank = 0; rank < job_.world(); ++rank) {
    group::QpInfo card;
    card.mac = job_.address(rank);
    card.version = run.job.version;
    card.gid = job_.gid(rank);
    card.first_psn = static_cast<std::uint32_t>(prng_.next()) & roce::kPsnMask;
    card.is_selective = !run.goes_back;
    cards[rank] = {card, card};
    cards[rank].sending.queue_pair = 0x100 + 2 * rank;
    cards[rank].receiving.queue_pair = 0x101 + 2 * rank;
  }
  for (unsigned rank = 0; rank < job_.world(); ++rank) {
    workers_[rank].endpoint = std::make_unique<group::RoceEndpoint>(cards[rank], cards[job_.right_of(rank)].receiving,
                                                                    cards[job_.left_of(rank)].sending, kSender);
    connect(rank);
  }
}

void Endpoints::connect(unsigned rank) {
  device_.receiver(rank).connect(
      [this, rank](Ticks) -> std::optional<MacReceiver::Arrival> {
        Bytes frame(group::RoceEndpoint::kFrameBytesMax);
        for (;;) {
          const std::size_t bytes = workers_[rank].endpoint->next(frame, time());
          if (bytes == 0) return std::nullopt;
          if (prng_.chance(options_.loss)) {
            ++lost_;
            continue;
          }
          frame.resize(bytes);
          return MacReceiver::Arrival{std::move(frame), prng_.chance(options_.damage)};
        }
      },
      {});
  device_.on_frame(rank, [this, rank](const TimedFrame& frame) {
    if (prng_.chance(options_.stall)) device_.sender(rank).stop(device_.now() + prng_.below(kStallMax));
    if (frame.is_damaged) return;
    if (prng_.chance(options_.loss)) {
      ++lost_;
      return;
    }
    workers_[rank].endpoint->on_frame(frame.bytes, time());
  });
}

// The software's sum of a message, as every worker must have it in its memory; its first bytes are a header.
const std::vector<std::byte>& Endpoints::sum(std::uint32_t message) {
  auto& [number, bytes] = sums_[message % sums_.size()];
  if (number == message && !bytes.empty()) return bytes;
  number = message;
  std::vector<std::vector<std::byte>> all;
  for (unsigned rank = 0; rank < job_.world(); ++rank) all.push_back(job_.message(rank, message));
  bytes.assign(all[0].size(), std::byte{0});
  const numbers::WireFormat format = job_.options().format;
  for (std::size_t at = 0; at < bytes.size(); at += roce::kPathMtu) {
    const std::size_t first = at == 0 ? roce::kAggregationBytes : at;
    const std::size_t room = std::min(bytes.size(), at + roce::kPathMtu) - first;
    std::vector<const std::byte*> inputs;
    for (const auto& one : all) inputs.push_back(one.data() + first);
    folder_.fold(format, inputs, numbers::elements_that_fit(format, room), bytes.data() + first);
  }
  return bytes;
}

bool Endpoints::is_right(unsigned rank, std::uint32_t message, std::span<const std::byte> bytes) {
  roce::AggregationHeader header;
  const bool is_ours = roce::parse(bytes, header, job_.options().version) == roce::AggregationError::kNone &&
                       header.message == message && header.rank == job_.left_of(rank) &&
                       (header.flags & roce::kSummed) != 0;
  const auto& expected = sum(message);
  constexpr std::size_t skipped = roce::kAggregationBytes;
  return is_ours && bytes.size() == expected.size() &&
         std::memcmp(bytes.data() + skipped, expected.data() + skipped, bytes.size() - skipped) == 0;
}

void Endpoints::progress(unsigned rank) {
  Worker& worker = workers_[rank];
  group::RoceReceiver::Completed completed;
  while (worker.endpoint->receiver().take(completed)) {
    const auto bytes = worker.endpoint->received_memory().subspan(completed.offset, completed.size_bytes);
    if (completed.immediate != worker.received || !is_right(rank, worker.received, bytes)) ++wrong_;
    ++worker.received;
    ++whole_;
    last_arrival_ = device_.now();
  }
  const auto acknowledged = static_cast<std::uint32_t>(worker.endpoint->sender().acknowledged());
  while (worker.posted < options_.messages &&
         worker.posted < std::min(acknowledged, worker.received) + roce::kWindowMessages) {
    auto& bytes = worker.posted_bytes[worker.posted % roce::kWindowMessages];
    bytes = job_.message(rank, worker.posted);
    worker.endpoint->sender().post(worker.posted, bytes, time());
    ++worker.posted;
  }
  worker.endpoint->sender().on_time(time());
}

bool Endpoints::is_done() const {
  return std::ranges::all_of(workers_, [&](const Worker& worker) {
    return worker.received == options_.messages && worker.endpoint->sender().is_idle();
  });
}

nlohmann::json Endpoints::run() {
  const Ticks begun = device_.now();
  last_arrival_ = begun;
  for (Ticks due = begun; !is_done(); due += kTimerPeriod) {
    for (unsigned rank = 0; rank < job_.world(); ++rank) progress(rank);
    while (device_.now() < due) device_.step();
    if (device_.now() > last_arrival_ + kPatience) throw std::runtime_error("workers wait and no frame arrives");
  }
  std::uint64_t paused = 0;
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) paused += device_.pauses(port);
  std::uint64_t sent = 0, resent = 0, timeouts = 0, naks = 0, unknown = 0, bad_icrcs = 0, not_sums = 0;
  for (const Worker& worker : workers_) {
    const group::RoceSenderStats& sender = worker.endpoint->sender().stats();
    sent += sender.sent_packets;
    resent += sender.resent_packets;
    timeouts += sender.timeouts;
    naks += sender.naks;
    unknown += sender.unknown;
    bad_icrcs += worker.endpoint->stats().bad_icrcs;
    not_sums += worker.endpoint->receiver().stats().not_sums;
  }
  nlohmann::json verdicts = verdicts_of(device_, software_);
  for (auto& pair : verdicts) pair = nlohmann::json(pair[0]);
  return {{"world", job_.world()},
          {"messages", whole_},
          {"packets", sent},
          {"wrong", wrong_},
          {"lost", lost_},
          {"resent", resent},
          {"timeouts", timeouts},
          {"naks", naks},
          {"unknown", unknown},
          {"bad_icrcs", bad_icrcs},
          {"not_sums", not_sums},
          {"verdicts", verdicts},
          {"pauses", paused},
          {"sums_lost", sums_lost(device_)},
          {"cycles", device_.cycles()},
          {"time_ns", static_cast<double>(device_.now() - begun) / kTicksPerNs}};
}

}  // namespace

nlohmann::json run_endpoints(const EndpointsRun& run) {
  return Endpoints(run).run();
}

}  // namespace netfold::rtl

#include "switch/mixture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <ranges>
#include <string>

#include "base/prng.h"
#include "switch/changes.h"
#include "switch/comparison.h"
#include "switch/job.h"
#include "switch/switch_device.h"
#include "switch/verdicts.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

constexpr Ticks kPatience = 6000 * kCorePeriod;      // for frames that the software has sent long ago
constexpr std::uint64_t kStranger = 0x024e46f00000;  // addresses outside the job

constexpr Ticks kStallMax = 500 * kCorePeriod;  // for which a neighbour sometimes accepts no frames
// The first frame of an epoch waits so long in the hardware while sums of the epoch before are made.
constexpr Ticks kDrainTime = 500 * kCorePeriod;
constexpr unsigned kNobody = ~0u;

struct Offered {
  unsigned port = 0;
  Bytes bytes;
  const char* kind = "";
  bool is_damaged = false;
  unsigned rank = kNobody;  // rank and position of the contribution: it is sent again if it is not accepted
  std::uint64_t position = 0;
};

class Mixture {
 public:
  explicit Mixture(const MixtureRun& run);
  nlohmann::json run();

 private:
  JobOptions random_job();
  void begin_epoch(bool may_change_settings);
  std::uint64_t packets() const { return job_->packets(); }
  Bytes contribution(unsigned rank, std::uint64_t position) const;

  Offered choose();
  Offered next_contribution(unsigned rank);
  Offered repeated(unsigned rank);
  Offered wrong(unsigned rank);
  void restart(unsigned rank);
  Offered plain();
  Offered foreign(unsigned rank);
  void offer(const Offered& offered);
  std::uint64_t taken();
  void settle();

  MixtureRun options_;
  Prng prng_;
  SwitchDevice device_;
  JobOptions job_options_;
  std::optional<Job> job_;
  std::optional<Comparison> comparison_;
  std::vector<std::uint64_t> next_;              // by rank: the position not sent yet
  std::vector<std::deque<std::uint64_t>> lost_;  // by rank: positions that are to be sent again
  std::vector<std::deque<Offered>> waiting_;     // by port: for its cable
  std::uint16_t epoch_ = 1;
  std::uint64_t strangers_ = 0;
};

Mixture::Mixture(const MixtureRun& run) : options_(run), prng_(run.seed), waiting_(SwitchDevice::kPorts) {
  job_options_ = random_job();
  job_.emplace(job_options_);
  comparison_.emplace(SwitchDevice::kPorts, job_options_.format.format);
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
    device_.receiver(port).connect(
        [this, port](Ticks) -> std::optional<MacReceiver::Arrival> {
          if (waiting_[port].empty()) return std::nullopt;
          const Offered offered = std::move(waiting_[port].front());
          waiting_[port].pop_front();
          return MacReceiver::Arrival{offered.bytes, offered.is_damaged};
        },
        [this, port](const TimedFrame& frame) { comparison_->entered(port, frame); });
    device_.on_frame(port, [this, port](const TimedFrame& frame) {
      comparison_->left(port, frame);
      if (prng_.chance(0.02)) device_.sender(port).stop(device_.now() + prng_.below(kStallMax));
    });
  }
}

JobOptions Mixture::random_job() {
  JobOptions job;
  job.version = options_.version.value_or(prng_.chance(0.5) ? roce::Version::kV1 : roce::Version::kV2);
  job.says_workers = prng_.chance(0.6);
  job.job = static_cast<std::uint16_t>(prng_.below(200));
  job.epoch = epoch_;
  std::vector<unsigned> ports(SwitchDevice::kPorts);
  for (unsigned port = 0; port < ports.size(); ++port) {
    ports[port] = port;
    std::swap(ports[port], ports[prng_.below(port + 1)]);
  }
  const unsigned workers =
      options_.workers != 0 ? options_.workers : 2 + static_cast<unsigned>(prng_.below(SwitchDevice::kPorts - 1));
  job.ports.assign(ports.begin(), ports.begin() + workers);
  constexpr numbers::Format formats[] = {numbers::Format::kFp32, numbers::Format::kInt32, numbers::Format::kBfp,
                                         numbers::Format::kFp16, numbers::Format::kBf16};
  job.format.format = formats[prng_.below(std::size(formats))];
  if (options_.format) job.format.format = *options_.format;
  const bool is_default = job.format.format == numbers::Format::kFp32 || job.format.format == numbers::Format::kInt32;
  job.names_format = !is_default || prng_.chance(0.5);
  job.has_one_way = prng_.chance(0.5);
  job.is_wild = prng_.chance(0.3);
  job.has_tag = prng_.chance(0.15);
  job.first_psn = prng_.chance(0.5) ? static_cast<std::uint32_t>(prng_.next()) & roce::kPsnMask
                                    : roce::kPsnMask - static_cast<std::uint32_t>(prng_.below(20));
  job.packets = 2 + static_cast<std::uint32_t>(prng_.below(prng_.chance(0.1) ? 127 : 4));
  job.last_bytes = prng_.chance(0.3) ? roce::kPathMtu : 4 * static_cast<std::uint32_t>(1 + prng_.below(256));
  job.seed = prng_.next();
  return job;
}

void Mixture::begin_epoch(bool may_change_settings) {
  device_.run_for(kDrainTime);  // a frame of a later epoch at another port must not overtake one that waits
  job_options_.epoch = epoch_++;
  job_.emplace(job_options_);
  next_.assign(job_->world(), 0);
  lost_.assign(job_->world(), {});
  if (!may_change_settings) return;
  std::uint32_t ports = 0;
  for (const unsigned port : job_options_.ports) ports |= 1u << port;
  if (prng_.chance(0.1)) ports = 1 + static_cast<std::uint32_t>(prng_.below((1u << SwitchDevice::kPorts) - 1));
  configure(device_, &comparison_->software(), job_options_.format.format != numbers::Format::kInt32, ports);
}

Bytes Mixture::contribution(unsigned rank, std::uint64_t position) const {
  return job_->contribution(rank, static_cast<std::uint32_t>(position / packets()),
                            static_cast<std::uint32_t>(position % packets()));
}

Offered Mixture::next_contribution(unsigned rank) {
  auto& lost = lost_[rank];
  const unsigned port = job_->port(rank);
  if (!lost.empty() && (prng_.chance(0.5) || lost.size() > 3)) {
    const std::uint64_t position = lost.front();
    lost.pop_front();
    return {port, contribution(rank, position), "sent again", false, rank, position};
  }
  // A rank that is far ahead would only get notices to wait, so this is rare.
  std::uint64_t last = UINT64_MAX;
  for (unsigned other = 0; other < job_->world(); ++other) {
    last = std::min(last, lost_[other].empty() ? next_[other] : std::min(next_[other], lost_[other].front()));
  }
  if (next_[rank] / packets() >= last / packets() + roce::kWindowMessages) {
    if (!prng_.chance(0.03)) return {};
  }
  while (prng_.chance(options_.loss)) lost.push_back(next_[rank]++);
  const std::uint64_t position = next_[rank]++;
  return {port, contribution(rank, position), "contribution", false, rank, position};
}

Offered Mixture::repeated(unsigned rank) {
  if (next_[rank] == 0) return {};
  const std::uint64_t back = std::min<std::uint64_t>(next_[rank], 1 + prng_.below(5 * packets()));
  return {job_->port(rank), contribution(rank, next_[rank] - back), "repeated"};
}

Offered Mixture::wrong(unsigned rank) {
  const std::uint64_t back = std::min<std::uint64_t>(next_[rank], prng_.below(2 * packets()));
  const std::uint64_t position = next_[rank] - back;  // often the one that is due
  Offered offered{job_->port(rank), contribution(rank, position), "wrong"};
  if (!change_one_field(offered.bytes, job_options_, position % packets() == 0, prng_)) return {};
  return offered;
}

Offered Mixture::plain() {
  const auto port = static_cast<unsigned>(prng_.below(SwitchDevice::kPorts));
  const std::uint64_t from = kStranger + port;
  const std::uint64_t to = prng_.chance(0.2)   ? kEverybody
                           : prng_.chance(0.2) ? kStranger + 0x100 + ++strangers_  // never heard of
                           : prng_.chance(0.1) ? 0x0180c2000000 + prng_.below(16)  // not to be forwarded
                           : prng_.chance(0.5) ? job_->address(static_cast<unsigned>(prng_.below(job_->world())))
                                               : kStranger + prng_.below(SwitchDevice::kPorts);
  const std::size_t sizes[] = {60, 64, 60 + prng_.below(64), 60 + prng_.below(1459), 1518};
  const auto make = prng_.chance(0.4) ? ipv4_frame : plain_frame;
  return {port, make(to, from, sizes[prng_.below(5)], prng_.next()), "plain", to == kEverybody && prng_.chance(0.1)};
}

// RoCE that is not folded: acknowledgements, writes without the aggregation header over other connections, and writes
// of the other version that differ from the job's by nothing else.
Offered Mixture::foreign(unsigned rank) {
  if (prng_.chance(0.4)) return {job_->port(rank), job_->acknowledgement(rank, 0), "acknowledgement"};
  const auto index = static_cast<std::uint32_t>(prng_.below(packets()));
  if (prng_.chance(0.5)) {
    const bool is_v1 = job_options_.version == roce::Version::kV1;
    const Job other = job_->as_plain_writes(is_v1 ? roce::Version::kV2 : roce::Version::kV1);
    const auto message = static_cast<std::uint32_t>(next_[rank] / packets());
    return {job_->port(rank), other.contribution(rank, message, index), "other version"};
  }
  JobOptions plain = job_options_;
  plain.is_folded = false;
  plain.has_tag = false;
  plain.job = static_cast<std::uint16_t>(job_options_.job + 1);
  return {job_->port(rank), Job(plain).contribution(rank, 0, index), "not folded"};
}

// Restarts a connection under other sequence numbers, with frames in flight.
void Mixture::restart(unsigned rank) {
  job_->restart(rank);
  const std::uint64_t messages = (next_[rank] + packets() - 1) / packets();
  const std::uint64_t first = messages < roce::kWindowMessages ? 0 : messages - roce::kWindowMessages;
  lost_[rank].clear();
  for (std::uint64_t position = first * packets(); position < next_[rank]; ++position) lost_[rank].push_back(position);
}

Offered Mixture::choose() {
  const auto rank = static_cast<unsigned>(prng_.below(job_->world()));
  const auto kind = prng_.below(1000);
  if (kind < 700) return next_contribution(rank);
  if (kind < 800) return repeated(rank);
  if (kind < 870) return wrong(rank);
  if (kind < 950) return plain();
  if (kind < 985) return foreign(rank);
  if (kind < 995) {
    restart(rank);
    return repeated(rank);
  }
  begin_epoch(prng_.chance(0.7));
  return {};
}

void Mixture::offer(const Offered& offered) {
  if (options_.is_verbose) {
    fmt::print(stderr, "{} port {} {} {} bytes\n", device_.now() / kTicksPerNs, offered.port, offered.kind,
               offered.bytes.size());
  }
  waiting_[offered.port].push_back(offered);
  const std::uint64_t before = taken();
  settle();
  if (offered.rank == kNobody || taken() != before) return;
  auto& lost = lost_[offered.rank];
  lost.insert(std::ranges::upper_bound(lost, offered.position), offered.position);
}

// Contributions that the software's switch has, or no longer needs.
std::uint64_t Mixture::taken() {
  using switching::RoceVerdict;
  std::uint64_t count = 0;
  for (const RoceVerdict verdict :
       {RoceVerdict::kKept, RoceVerdict::kFolded, RoceVerdict::kAnswered, RoceVerdict::kWaiting, RoceVerdict::kStale}) {
    count += comparison_->software().count(verdict);
  }
  return count;
}

// Waits until the software's frames have come, and then a while for frames that the hardware may still process.
void Mixture::settle() {
  const Ticks latest = device_.now() + kPatience;
  const auto is_under_way = [&] {
    return std::ranges::any_of(waiting_, [](const auto& queue) { return !queue.empty(); }) ||
           !std::ranges::all_of(std::views::iota(0u, SwitchDevice::kPorts),
                                [&](unsigned port) { return device_.receiver(port).is_idle(device_.now()); }) ||
           comparison_->owed() > 0;
  };
  while (is_under_way() && device_.now() < latest) device_.step();
  device_.run_for((40 + prng_.below(160)) * kCorePeriod);
  if (comparison_->owed() > 0) comparison_->close();
}

nlohmann::json Mixture::run() {
  begin_epoch(true);
  for (unsigned rank = 0; rank < job_->world(); ++rank) offer({job_->port(rank), job_->greeting(rank), "greeting"});
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
    offer({port, plain_frame(kEverybody, kStranger + port, 60, port), "greeting"});
  }
  unsigned frames = 0;
  while (frames < options_.frames && comparison_->differences() == 0) {
    const Offered offered = choose();
    if (offered.bytes.empty()) continue;
    offer(offered);
    ++frames;
  }
  device_.run_for(kPatience);
  const nlohmann::json verdicts = verdicts_of(device_, comparison_->software());
  nlohmann::json result = comparison_->to_json();
  result["differences"] = comparison_->close() + differing(verdicts);
  result["frames"] = frames;
  result["verdicts"] = verdicts;
  result["cycles"] = device_.cycles();
  return result;
}

}  // namespace

nlohmann::json run_mixture(const MixtureRun& run) {
  return Mixture(run).run();
}

nlohmann::json run_mixtures(unsigned runs, const MixtureRun& first) {
  Prng prng(first.seed);
  nlohmann::json sum{{"runs", runs}, {"seeds", nlohmann::json::array()}, {"examples", nlohmann::json::array()}};
  nlohmann::json verdicts = nlohmann::json::object();
  for (unsigned i = 0; i < runs; ++i) {
    MixtureRun run = first;
    run.seed = runs == 1 ? first.seed : prng.next() >> 32;
    const nlohmann::json found = run_mixture(run);
    for (const char* const name : {"frames", "compared", "sums", "differences", "damaged", "cycles"}) {
      sum[name] = sum.value(name, std::uint64_t{0}) + found.at(name).get<std::uint64_t>();
    }
    for (const auto& [name, pair] : found.at("verdicts").items()) {
      auto& total = verdicts[name];
      if (total.is_null()) total = {0, 0};
      for (unsigned side : {0u, 1u}) total[side] = total[side].get<std::uint64_t>() + pair[side].get<std::uint64_t>();
    }
    if (found.at("differences") != 0) {
      sum["seeds"].push_back(run.seed);
      for (const auto& example : found.at("examples")) sum["examples"].push_back(example);
    }
  }
  sum["verdicts"] = verdicts;
  return sum;
}

}  // namespace netfold::rtl

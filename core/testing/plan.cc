#include "testing/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/names.h"
#include "base/prng.h"
#include "testing/plan_peers.h"

namespace netfold::testing {
namespace {

// The words for faults that a run can leave out, and the kinds of faults behind each.
struct FaultName {
  const char* name;
  std::vector<FaultKind> kinds;
};
const std::vector<FaultName>& names() {
  using enum FaultKind;
  static const std::vector<FaultName> kNames{{"pauses", {kPauseWorker, kPauseSwitch, kStall}},
                                             {"crashes", {kKillWorker, kPowerWorker}},
                                             {"switch-crashes", {kKillSwitch, kPowerSwitch, kStopSwitch}},
                                             {"partitions", {kPartition, kPartitionOneWay, kPartPeers}},
                                             {"cuts", {kCut, kCutLine, kCutStream}},
                                             {"slow-streams", {kSlow}},
                                             {"disagreements", {kDisagree}},
                                             {"leaves", {kLeaveEarly, kGiveUp}},
                                             {"intruders", {kIntruder, kStranger}},
                                             {"loss", {}},
                                             {"duplicates", {}},
                                             {"delays", {}},
                                             {"late-packets", {}},
                                             {"forgeries", {}},
                                             {"full-links", {}},
                                             {"small-buffers", {}}};
  return kNames;
}

class Drawing {
 public:
  Drawing(std::uint64_t seed, const Wishes& wishes) : prng_(seed), wishes_(wishes) { plan_.seed = seed; }

  Plan run() {
    plan_.shards = static_cast<std::uint16_t>(1u << prng_.below(3));
    plan_.heartbeat_s = std::array{0.1, 0.25, 0.5, 1.0}[prng_.below(4)];
    if (prng_.chance(0.5)) plan_.secret = "the cluster's secret";
    const bool require_auth = prng_.chance(0.6);
    plan_.require_auth = require_auth && !plan_.secret.empty();
    plan_.repeats_salts = prng_.chance(0.5);
    const std::size_t jobs = 1 + prng_.below(prng_.chance(0.3) ? 3 : 1);
    for (std::size_t job = 0; job < jobs; ++job) plan_.jobs.push_back(draw_job(job));
    draw_weather();
    plan_.calm_at = seconds(2, 20);
    draw_faults();
    PeerDrawing(plan_).run();
    draw_other_collectives();
    apply_wishes();
    return std::move(plan_);
  }

 private:
  Nanoseconds seconds(double least, double most) { return from_seconds(least + (most - least) * prng_.unit()); }
  double sometimes(double probability, double most) {
    const double value = prng_.unit() * most;
    return prng_.chance(probability) ? value : 0;
  }
  std::size_t log_uniform(std::size_t most) {
    const int bits = 64 - __builtin_clzll(most);
    const std::size_t bound =
        std::min<std::size_t>(most, std::size_t{1} << prng_.below(static_cast<std::uint64_t>(bits)));
    return prng_.below(bound + 1);
  }

  JobPlan draw_job(std::size_t index) {
    JobPlan job;
    job.name = fmt::format("job-{}", index);
    job.world = static_cast<std::uint16_t>(1 + prng_.below(8));
    const std::size_t tensors = 1 + prng_.below(6);
    for (std::size_t t = 0; t < tensors; ++t) {
      const Travel travel = kTravels[prng_.below(kTravels.size())];
      // Many chunks, so that slots are used again and again; or a few elements.
      const std::size_t count = prng_.chance(0.3) ? prng_.below(12000) : log_uniform(4000);
      const bool is_in_place = prng_.chance(0.6), average = prng_.chance(0.3);
      const group::CollectiveRequest request{nullptr, nullptr, count, travel.type, travel.format, average};
      job.tensors.push_back({request, is_in_place});
    }
    job.in_flight = 1 + prng_.below(4);
    job.compute_max = seconds(0, 1);
    job.lives = 1 + static_cast<int>(prng_.below(4));
    job.timeout_s = 3 + 4 * prng_.unit();
    job.window = prng_.chance(0.5) ? 0 : 1 + static_cast<std::uint32_t>(prng_.below(32));
    job.mtu = static_cast<std::uint32_t>(prng_.chance(0.5) ? 256 + prng_.below(256) : 1500);
    if (job.window == 0) job.window = 16;  // the default takes a mebibyte and a half for each rank
    job.bfp = {static_cast<std::uint8_t>(8u << prng_.below(3)), static_cast<std::uint8_t>(2 + prng_.below(6))};
    job.keeps_its_ports = prng_.chance(0.7);
    return job;
  }

  // Through the switch, beside all-reduces: what a switch serves (group/collective_request.h).
  void draw_other_collectives() {
    using schedule::Collective;
    constexpr std::array kOthers{Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
                                 Collective::kBarrier};
    Prng prng(plan_.seed ^ 0x6f776e6572);  // of its own, so that everything else stays as it was drawn
    for (JobPlan& job : plan_.jobs) {
      if (job.is_among_peers) continue;
      for (TensorPlan& tensor : job.tensors) {
        if (prng.chance(0.6)) continue;
        group::CollectiveRequest& request = tensor.request;
        request.collective = kOthers[prng.below(kOthers.size())];
        request.average = request.average && request.collective == Collective::kReduceScatter;
        if (request.collective == Collective::kBroadcast) request.root = static_cast<int>(prng.below(job.world));
        if (request.collective == Collective::kBarrier) request.count = 0;
        const bool has_parts =
            request.collective == Collective::kReduceScatter || request.collective == Collective::kAllGather;
        if (has_parts) request.count /= job.world;
        if (request.collective != Collective::kReduceScatter) request.format = numbers::Format::kNone;
      }
    }
  }

  void draw_weather() {
    Weather& weather = plan_.weather;
    weather.delay_min = static_cast<Nanoseconds>(5 + prng_.below(200)) * kMicrosecond;
    weather.delay_max = weather.delay_min + static_cast<Nanoseconds>(prng_.below(200)) * kMicrosecond;
    weather.loss = sometimes(0.5, 0.05);
    weather.duplicate = sometimes(0.4, 0.1);
    weather.hold = sometimes(0.4, 0.1);
    weather.hold_max = static_cast<Nanoseconds>(1 + prng_.below(50)) * kMillisecond;
    weather.late = sometimes(0.5, 0.02);
    weather.late_max = seconds(0.1, 15);
    weather.forge = sometimes(0.3, 0.05);
    weather.spoofs = plan_.require_auth;
    weather.full = sometimes(0.3, 0.1);
  }

  void draw_faults() {
    const std::size_t count = prng_.below(6);
    for (std::size_t f = 0; f < count; ++f) {
      FaultPlan fault;
      fault.at = static_cast<Nanoseconds>(prng_.unit() * 0.9 * static_cast<double>(plan_.calm_at));
      fault.kind = static_cast<FaultKind>(prng_.below(static_cast<std::uint64_t>(FaultKind::kPartPeers)));
      fault.job = prng_.below(plan_.jobs.size());
      fault.rank = static_cast<std::uint16_t>(prng_.below(plan_.jobs[fault.job].world));
      fault.lasts = prng_.chance(0.5) ? seconds(0.001, 1) : seconds(0.5, 15);
      fault.is_outward = prng_.chance(0.5);
      plan_.faults.push_back(fault);
    }
    std::stable_sort(plan_.faults.begin(), plan_.faults.end(),
                     [](const FaultPlan& a, const FaultPlan& b) { return a.at < b.at; });
  }

  void apply_wishes() {
    const auto& without = wishes_.without;
    for (const FaultName& name : names()) {
      if (!without.contains(name.name)) continue;
      std::erase_if(plan_.faults, [&](const FaultPlan& fault) {
        return std::find(name.kinds.begin(), name.kinds.end(), fault.kind) != name.kinds.end();
      });
    }
    Weather& weather = plan_.weather;
    if (without.contains("loss")) weather.loss = 0;
    if (without.contains("duplicates")) weather.duplicate = 0;
    if (without.contains("delays")) weather.hold = 0;
    if (without.contains("late-packets")) weather.late = 0;
    if (without.contains("forgeries")) weather.forge = 0;
    if (without.contains("full-links")) weather.full = 0;
    for (JobPlan& job : plan_.jobs) {
      if (without.contains("small-buffers")) job.stream = {.is_memory = job.stream.is_memory};
    }
    if (wishes_.shards) plan_.shards = static_cast<std::uint16_t>(*wishes_.shards);
    if (wishes_.jobs)
      plan_.jobs.resize(std::min<std::size_t>(plan_.jobs.size(), static_cast<std::size_t>(*wishes_.jobs)));
    for (JobPlan& job : plan_.jobs) {
      if (wishes_.lives) job.lives = *wishes_.lives;
      if (!wishes_.world) continue;
      job.world = static_cast<std::uint16_t>(*wishes_.world);
      fit_to_world(job);
    }
    std::erase_if(plan_.faults, [&](const FaultPlan& fault) {
      if (fault.job >= plan_.jobs.size()) return true;
      return std::max(fault.rank, fault.other) >= plan_.jobs[fault.job].world;
    });
  }

  Prng prng_;
  const Wishes& wishes_;
  Plan plan_;
};

}  // namespace

std::vector<std::string> fault_names() {
  std::vector<std::string> all;
  for (const FaultName& name : names()) all.emplace_back(name.name);
  return all;
}

const char* name_of(FaultKind kind) {
  constexpr const char* kNames[]{
      "pause worker",     "pause switch", "stall",     "kill worker",       "kill switch", "power off worker",
      "power off switch", "stop switch",  "partition", "one-way partition", "cut",         "intruder",
      "stranger",         "part peers",   "cut line",  "cut stream",        "slow",        "disagree",
      "leave early",      "give up"};
  return name_in(kNames, kind);
}

Plan draw_plan(std::uint64_t seed, const Wishes& wishes) {
  return Drawing(seed, wishes).run();
}

std::string to_string(const Plan& plan) {
  const Weather& weather = plan.weather;
  std::string text = fmt::format(
      "{} shards, heartbeat {} s, secret {}, tags {}, repeats salts {}, loss {:.3f}, duplicate {:.3f}, hold {:.3f}, "
      "late "
      "{:.3f}, forge {:.3f}, full {:.3f}\n",
      plan.shards, plan.heartbeat_s, !plan.secret.empty(), plan.require_auth, plan.repeats_salts, weather.loss,
      weather.duplicate, weather.hold, weather.late, weather.forge, weather.full);
  for (const JobPlan& job : plan.jobs) {
    text += fmt::format("{}: world {}, {} lives, timeout {:.2f} s, computes up to {:.2f} s, ", job.name, job.world,
                        job.lives, job.timeout_s, to_seconds(job.compute_max));
    text += job.is_among_peers ? fmt::format("among peers, {}buffers {}, window {}, pieces {}, {:.0f} bytes/s:",
                                             job.stream.is_memory ? "shared memory, " : "", job.stream.buffer_bytes,
                                             job.stream.window_bytes, job.stream.piece_max, job.stream.bytes_per_s)
                               : fmt::format("window {}, mtu {}:", job.window, job.mtu);
    for (const auto& [request, is_in_place] : job.tensors) {
      text += fmt::format(" {}", schedule::name_of(request.collective));
      text += job.is_among_peers ? fmt::format(" by {},", request.algorithm.name) : ",";
      text += fmt::format(" {} as {} x {}{}{}", numbers::name_of(request.type), numbers::name_of(request.format),
                          request.count, is_in_place ? " in place" : "", request.average ? " average" : "");
    }
    text += '\n';
  }
  for (const FaultPlan& fault : plan.faults) {
    text += fmt::format("{:.3f} s: {} (rank {} of job {}, other {}) for {:.3f} s\n", to_seconds(fault.at),
                        name_of(fault.kind), fault.rank, fault.job, fault.other, to_seconds(fault.lasts));
  }
  return text + fmt::format("calm from {:.3f} s on\n", to_seconds(plan.calm_at));
}

}  // namespace netfold::testing

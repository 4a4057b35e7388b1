// netfold-switch-bench: the program behind `netfold bench switch`. It measures the switch of frames memory to memory,
// or a switch at the other ends of this machine's cables, and prints one JSON object.
#include <fmt/core.h>
#include <sched.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "link/dpdk/dpdk.h"
#include "switch_bench/cable_bench.h"
#include "switch_bench/core_bench.h"
#include "switch_bench/options.h"
#include "switch_bench/round_bench.h"

namespace {

using namespace netfold;
using apps::Options;
using Json = nlohmann::ordered_json;

constexpr double kSearchTo = 0.01, kRateLeast = 0.001;  // width of the last interval, and the lowest rate that is tried
constexpr double kAboveUnpaced = 1.25;                  // rates that are tried, where only windows set the pace
constexpr double kPaceLeast = 0.97;                     // of a rate, or it was not offered

link::DpdkOptions devices_for(const Options& options, std::vector<std::string> ports, std::uint16_t threads) {
  link::DpdkOptions dpdk;
  dpdk.devices.ports = std::move(ports);
  dpdk.devices.threads = dpdk.devices.receivers = threads;
  dpdk.devices.buffers = options.buffers;
  dpdk.devices.queue_frames = options.queue_frames;
  dpdk.eal = options.eal;
  dpdk.on_notice = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  return dpdk;
}

std::vector<std::string> ports_in_memory(std::size_t ports) {
  return std::vector<std::string>(ports, link::kRingDevice);
}

int complain(const Error& error) {
  fmt::print(stderr, "netfold bench switch: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

void add_distribution(Json& json, const char* name, apps::Distribution& values) {
  if (values.values.empty()) return;
  json[name] = {{"p50", values.quantile(0.5)},
                {"p99", values.quantile(0.99)},
                {"p999", values.quantile(0.999)},
                {"max", values.quantile(1)}};
}

Json json_of(apps::CoreResult& core, const apps::BenchOptions& options, std::size_t frame_bytes) {
  const double seconds = static_cast<double>(core.ticks) / apps::CoreClock::ticks_a_second();
  const double frames_s = seconds > 0 ? static_cast<double>(core.counted_frames) / seconds : 0;
  const double all = static_cast<double>(core.gradient_frames + core.plain_frames);
  const double gradient_share = all > 0 ? static_cast<double>(core.gradient_frames) / all : 0;
  Json json;
  json["frames_s_per_core"] = frames_s;
  json["folded_gbit_s_per_core"] = frames_s * gradient_share * static_cast<double>(frame_bytes) * 8 * 1e-9;
  json["gradients_s_per_core"] = frames_s * gradient_share * options.gradients;
  json["ns_per_frame"] = frames_s > 0 ? 1e9 / frames_s : 0;
  json["cycles_per_frame"] =
      core.counted_frames > 0 ? static_cast<double>(core.ticks) / static_cast<double>(core.counted_frames) : 0;
  json["instructions_per_frame"] =
      core.instructions > 0 ? Json(static_cast<double>(core.instructions) / static_cast<double>(core.counted_frames))
                            : Json(nullptr);
  json["gradient_frames"] = core.gradient_frames;
  json["chunks"] = core.chunks;
  json["results_checked"] = core.results_checked;
  json["wrong_sums"] = core.wrong_sums;
  json["offered_frames"] = core.offered_frames;
  json["refused_frames"] = core.refused_frames;
  json["jobs"] = core.jobs;
  json["faults_injected"] = core.faults_injected;
  json["probes"] = core.probes;
  json["resent"] = core.resent;
  json["counters_add_up"] = core.counters_add_up;
  json["rounds"] = core.rounds;
  json["disturbed_rounds"] = core.disturbed_rounds;
  add_distribution(json, "latency_us", core.latency);
  add_distribution(json, "plain_delay_us", core.plain_delay);
  if (core.plain_frames_delivered + core.plain_frames_lost > 0) {
    json["plain_frames"] = core.plain_frames_delivered;
    json["plain_frames_lost"] = core.plain_frames_lost;
  }
  return json;
}

std::unique_ptr<apps::Rounds> rounds_of(const Options& options) {
  const apps::BenchOptions& bench = options.bench;
  const apps::RoundShape shape{bench.workers, bench.format, bench.window, bench.gradients, bench.seed};
  if (options.protocol == "pcie") return apps::pcie_rounds(shape);
  if (options.protocol == "roce") return apps::roce_rounds(shape);
  return apps::netfold_rounds(shape);
}

// Forwarding and folding in turns on one core, or by a core that receives and one that folds.
int run_rounds(const Options& options) {
  const apps::RoundOptions wanted{options.bench.workers, options.layout == "per-port", options.bench.frames,
                                  options.cores};
  auto devices = link::open_dpdk(devices_for(options, ports_in_memory(wanted.workers + 1u), apps::threads_of(wanted)));
  if (!devices) return complain(devices.error());
  const auto rounds = rounds_of(options);
  const apps::RoundResult result = apps::run_rounds(**devices, *rounds, wanted);
  const auto told = [](const apps::PipelineTime& time) {
    return Json{{"frames_s", time.frames_s()},
                {"ns_per_frame", time.frames > 0 ? 1e9 / time.frames_s() : 0},
                {"frames", time.frames},
                {"rounds", time.rounds},
                {"disturbed_rounds", time.disturbed_rounds}};
  };
  Json json;
  json["frame_bytes"] = rounds->frame_bytes();
  json["forwarding"] = told(result.forwarding);
  json["while_folding"] = told(result.while_folding);
  json["folding"] = wanted.two_cores ? told(result.folding) : Json(nullptr);
  json["forwarded_checked"] = result.counts.forwarded;
  json["wrong_forwarded"] = result.counts.wrong_forwarded;
  json["sums_checked"] = result.counts.sums;
  json["wrong_sums"] = result.counts.wrong_sums;
  json["missing"] = result.missing;
  json["buffers_leaked"] = (*devices)->pool().in_use();
  const bool is_right = result.counts.wrong_forwarded + result.counts.wrong_sums + result.missing == 0 &&
                        (*devices)->pool().in_use() == 0;
  json["right"] = is_right;
  fmt::print("{}\n", json_text(json));
  return is_right ? 0 : 1;
}

// One run of all threads, each with its own queues; the results by thread.
std::vector<apps::CoreResult> measure(link::FrameDevices& devices, const Options& options,
                                      const apps::BenchOptions& bench) {
  std::vector<apps::CoreResult> results(options.threads);
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (std::uint16_t thread = 0; thread < options.threads; ++thread) {
    threads.emplace_back([&, thread] {
      netfold::set_up_thread(fmt::format("nf-bench-{}", thread),
                             thread < options.cores.size() ? options.cores[thread] : netfold::kAnyCore);
      devices.enter_thread();
      {
        apps::CoreBench core(devices, thread, bench);
        ++ready;
        while (ready < options.threads) sched_yield();
        results[thread] = core.run();
      }
      devices.leave_thread();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// The highest rate below `high` that loses nothing, by halving.
double search(double high, const std::function<bool(double)>& loses_nothing) {
  double low = 0;
  while (high - low > kSearchTo * high && high > kRateLeast) {
    const double rate_gbit_s = (low + high) / 2;
    const bool is_lossless = loses_nothing(rate_gbit_s);
    fmt::print(stderr, "{:.4g} Gbit/s: {}\n", rate_gbit_s, is_lossless ? "nothing lost" : "lost some");
    (is_lossless ? low : high) = rate_gbit_s;
  }
  return low;
}

Json json_of(apps::CableResult& run, std::size_t frame_bytes) {
  const auto gbit_s = [&](std::uint64_t frames, Nanoseconds time) {
    return time > 0 ? static_cast<double>(frames * frame_bytes * 8) / static_cast<double>(time) : 0.0;
  };
  Json json;
  json["frames_s"] = run.time > 0 ? static_cast<double>(run.gradient_frames) / to_seconds(run.time) : 0;
  json["gbit_s"] = gbit_s(run.gradient_frames, run.time);
  json["offered_gbit_s"] = gbit_s(run.gradient_frames, run.sending_time);
  json["time_s"] = to_seconds(run.time);
  json["gradient_frames"] = run.gradient_frames;
  json["chunks"] = run.chunks;
  json["results_checked"] = run.results_checked;
  json["wrong_sums"] = run.wrong_sums;
  json["contributions_lost"] = run.contributions_lost;
  json["results_lost"] = run.results_lost;
  json["missed_frames"] = run.missed_frames;
  json["probes"] = run.probes;
  json["generator_idle"] =
      run.rounds > 0 ? static_cast<double>(run.idle_rounds) / static_cast<double>(run.rounds) : 0.0;
  add_distribution(json, "latency_us", run.latency);
  return json;
}

// A switch at the other ends of the devices.
int run_over_cables(const Options& options) {
  auto devices = link::open_dpdk(devices_for(options, options.devices, 1));
  if (!devices) return complain(devices.error());
  netfold::set_up_thread("nf-generator", options.cores.empty() ? netfold::kAnyCore : options.cores[0]);
  (*devices)->enter_thread();
  Json json;
  bool is_right = true;
  {
    auto bench = apps::CableBench::join(**devices, options.cables);
    if (!bench) return complain(bench.error());
    const std::size_t frame_bytes = (*bench)->gradients().frame_bytes();
    std::optional<Error> error;
    apps::CableResult last;
    const auto run = [&](double rate_gbit_s) {
      auto measured = (*bench)->run(options.bench.frames, rate_gbit_s);
      if (!measured) {
        error = measured.error();
        return false;
      }
      last = std::move(*measured);
      is_right &= last.wrong_sums == 0;
      const auto sent_bits = static_cast<double>(last.gradient_frames * frame_bytes * 8);
      const bool keeps_pace = sent_bits >= kPaceLeast * rate_gbit_s * static_cast<double>(last.sending_time);
      return keeps_pace && last.contributions_lost + last.results_lost == 0;
    };
    run(options.bench.rate_gbit_s);
    if (options.search && !error) {
      json["unpaced"] = json_of(last, frame_bytes);
      const double most = json["unpaced"]["gbit_s"].get<double>() * kAboveUnpaced;
      json["lossless_gbit_s"] = search(most, [&](double rate) { return !error && run(rate); });
      if (!error && json["lossless_gbit_s"] > 0) run(json["lossless_gbit_s"]);
    }
    if (error) return complain(*error);
    json["frame_bytes"] = frame_bytes;
    json["gradients"] = (*bench)->gradients().shape().count;
    json["run"] = json_of(last, frame_bytes);
  }
  json["buffers_leaked"] = nullptr;  // devices of the kernel keep some
  json["right"] = is_right;
  fmt::print("{}\n", json_text(json));
  return is_right ? 0 : 1;
}

int run(const Options& options) {
  if (!options.is_ring()) return run_over_cables(options);
  if (options.protocol != "netfold" || options.layout == "per-port") return run_rounds(options);
  auto devices = link::open_dpdk(devices_for(options, ports_in_memory(options.bench.workers), options.threads));
  if (!devices) return complain(devices.error());
  Json json;
  apps::BenchOptions bench = options.bench;
  if (options.search) {
    bench.rate_gbit_s = search(options.search_to_gbit_s, [&](double rate_gbit_s) {
      apps::BenchOptions offered = options.bench;
      offered.rate_gbit_s = rate_gbit_s;
      std::uint64_t refused = 0;
      for (const auto& core : measure(**devices, options, offered)) refused += core.refused_frames;
      return refused == 0;
    });
    json["lossless_gbit_s"] = bench.rate_gbit_s;
  }
  const std::size_t payload_bytes = numbers::encoded_bytes({bench.format, {}}, bench.gradients);
  const std::size_t frame_bytes = switching::kUdpFrameBytes + wire::kHeaderBytes + payload_bytes;
  json["frame_bytes"] = frame_bytes;
  json["cores"] = Json::array();
  auto results = measure(**devices, options, bench);
  bool is_right = true;
  for (auto& core : results) {
    is_right &= core.wrong_sums == 0 && core.counters_add_up;
    json["cores"].push_back(json_of(core, bench, frame_bytes));
  }
  json["buffers_leaked"] = (*devices)->pool().in_use();
  is_right &= (*devices)->pool().in_use() == 0;
  json["right"] = is_right;
  fmt::print("{}\n", json_text(json));
  return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  log::set_up("bench");
  const auto options = apps::parse_command_line(argc, argv);
  if (!options) return complain(options.error());
  return *options ? run(**options) : 0;
}

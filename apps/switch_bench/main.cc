// netfold-switch-bench: the program behind `netfold bench switch`. It measures the switch of frames memory to memory,
// and prints one JSON object.
#include <fmt/format.h>
#include <sched.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/thread_setup.h"
#include "link/dpdk/dpdk.h"
#include "switch_bench/case2_bench.h"
#include "switch_bench/core_bench.h"
#include "wire/pcie.h"

namespace {

using namespace netfold;
using Json = nlohmann::ordered_json;

struct Options {
  apps::BenchOptions bench;
  std::uint16_t threads = 1;
  std::vector<int> cores;
  std::string format = "fp32", faults, device = "ring";
  std::size_t buffers = 16384, queue_frames = 512;
  std::string dialect = "netfold", layout = "run-to-completion";
  bool search = false;
  double search_to_gbit_s = 1000;
};

bool parse(int argc, char** argv, Options& options, int& status) {
  CLI::App app("Measures the folding of one core, memory to memory; prints JSON.", "netfold-switch-bench");
  auto& bench = options.bench;
  app.add_option("--device", options.device);
  app.add_option("--dialect", options.dialect)->check(CLI::IsMember({"netfold", "pcie"}));
  app.add_option("--layout", options.layout)->check(CLI::IsMember({"run-to-completion", "per-port"}));
  app.add_option("--workers", bench.workers)->check(CLI::Range(1, 64));
  app.add_option("--gradients", bench.gradients)->check(CLI::Range(1, 7000));
  app.add_option("--format", options.format)->check(CLI::IsMember({"fp32", "fp16", "bf16", "int32", "bfp"}));
  app.add_option("--window", bench.window)->check(CLI::Range(1, 4096));
  app.add_option("--rate-gbit-s", bench.rate_gbit_s)->check(CLI::NonNegativeNumber);
  app.add_option("--plain", bench.plain)->check(CLI::Range(0.0, 0.99));
  app.add_option("--plain-bytes", bench.plain_bytes)->check(CLI::Range(60, 1514));
  app.add_option("--frames", bench.frames);
  app.add_option("--chunks-a-job", bench.chunks_a_job);
  app.add_option("--faults", options.faults);
  app.add_option("--seed", bench.seed);
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64));
  app.add_option("--cores", options.cores)->delimiter(',');
  app.add_option("--buffers", options.buffers);
  app.add_option("--queue-frames", options.queue_frames);
  app.add_flag("--search", options.search);
  app.add_option("--search-to-gbit-s", options.search_to_gbit_s);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    status = app.exit(error) == 0 ? 0 : 2;
    return false;
  }
  bench.format = *numbers::format_named(options.format);
  return true;
}

link::DpdkOptions devices_for(const Options& options, std::size_t ports, std::uint16_t threads) {
  link::DpdkOptions dpdk;
  dpdk.devices.ports.assign(ports, options.device);
  dpdk.devices.threads = dpdk.devices.receivers = threads;
  dpdk.devices.buffers = options.buffers;
  dpdk.devices.queue_frames = options.queue_frames;
  dpdk.on_notice = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  return dpdk;
}

int complain(const Error& error) {
  fmt::print(stderr, "netfold bench switch: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
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
  for (const auto& [name, values] : {std::pair{"latency_us", &core.latency}, {"plain_delay_us", &core.plain_delay}}) {
    if (values->values.empty()) continue;
    json[name] = {{"p50", values->quantile(0.5)},
                  {"p99", values->quantile(0.99)},
                  {"p999", values->quantile(0.999)},
                  {"max", values->quantile(1)}};
  }
  if (core.plain_frames_delivered + core.plain_frames_lost > 0) {
    json["plain_frames"] = core.plain_frames_delivered;
    json["plain_frames_lost"] = core.plain_frames_lost;
  }
  return json;
}

// Writes of case 2 on one core, or by a core that receives and one that folds.
int run_case2(const Options& options) {
  const apps::Case2Options wanted{options.bench.workers, options.layout == "per-port", options.bench.frames,
                                  options.bench.seed, options.cores};
  auto devices = link::open_dpdk(devices_for(options, wanted.workers + 1u, apps::threads_of(wanted)));
  if (!devices) return complain(devices.error());
  const apps::Case2Result result = apps::run_case2(**devices, wanted);
  const auto told = [](const apps::PipelineTime& time) {
    return Json{{"frames_s", time.frames_s()},
                {"ns_per_frame", time.frames > 0 ? 1e9 / time.frames_s() : 0},
                {"frames", time.frames},
                {"rounds", time.rounds},
                {"disturbed_rounds", time.disturbed_rounds}};
  };
  Json json;
  json["frame_bytes"] = wire::pcie::kFrameBytes;
  json["forwarding"] = told(result.forwarding);
  json["forwarding_and_folding"] = told(result.forwarding_and_folding);
  json["folding"] = wanted.two_cores ? told(result.folding) : Json(nullptr);
  json["writes_checked"] = result.writes_checked;
  json["wrong_writes"] = result.wrong_writes;
  json["sums_checked"] = result.sums_checked;
  json["wrong_sums"] = result.wrong_sums + result.missing_sums;
  json["buffers_leaked"] = (*devices)->pool().in_use();
  const bool is_right = result.wrong_writes == 0 && result.wrong_sums == 0 && result.missing_sums == 0 &&
                        (*devices)->pool().in_use() == 0;
  json["right"] = is_right;
  fmt::print("{}\n", json.dump());
  return is_right ? 0 : 1;
}

// One run of all threads, each with its own queues; the results by thread.
std::vector<apps::CoreResult> measure(link::FrameDevices& devices, const Options& options,
                                      const apps::BenchOptions& bench) {
  frames::MacTable addresses({8192, 1000000 * kSecond});
  std::vector<apps::CoreResult> results(options.threads);
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (std::uint16_t thread = 0; thread < options.threads; ++thread) {
    threads.emplace_back([&, thread] {
      engine::set_up_thread(fmt::format("nf-bench-{}", thread),
                            thread < options.cores.size() ? options.cores[thread] : engine::kAnyCore);
      devices.enter_thread();
      {
        apps::CoreBench core(devices, thread, addresses, bench);
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

// The highest rate that loses nothing, by halving.
double search(link::FrameDevices& devices, const Options& options) {
  double low = 0, high = options.search_to_gbit_s;
  while (high - low > 0.01 * high) {
    apps::BenchOptions bench = options.bench;
    bench.rate_gbit_s = low == 0 ? high / 2 : (low + high) / 2;
    std::uint64_t refused = 0;
    for (const auto& core : measure(devices, options, bench)) refused += core.refused_frames;
    fmt::print(stderr, "{:.1f} Gbit/s: {}\n", bench.rate_gbit_s, refused == 0 ? "nothing lost" : "lost some");
    (refused == 0 ? low : high) = bench.rate_gbit_s;
    if (high < 0.1) break;
  }
  return low;
}

int run(Options& options) {
  if (!options.faults.empty()) {
    auto faults = link::parse_faults(options.faults);
    if (!faults) {
      fmt::print(stderr, "netfold bench switch: {}\n", faults.error().message);
      return 2;
    }
    options.bench.faults = *faults;
  }
  if ((options.bench.window & (options.bench.window - 1)) != 0) {
    fmt::print(stderr, "netfold bench switch: --window {}: it must be a power of two\n", options.bench.window);
    return 2;
  }
  if (options.device != "ring") {
    fmt::print(
        stderr,
        "netfold bench switch: --device {}: the generator is at the other end of its ports, which only `ring` has "
        "in this process; `netfold lab run --switch dpdk` measures through devices of the kernel\n",
        options.device);
    return 2;
  }
  if (options.dialect == "pcie") return run_case2(options);
  auto devices = link::open_dpdk(devices_for(options, options.bench.workers, options.threads));
  if (!devices) return complain(devices.error());
  Json json;
  apps::BenchOptions bench = options.bench;
  if (options.search) {
    bench.rate_gbit_s = search(**devices, options);
    json["lossless_gbit_s"] = bench.rate_gbit_s;
  }
  const std::size_t payload_bytes = numbers::encoded_bytes({bench.format, {}}, bench.gradients);
  const std::size_t frame_bytes = frames::kUdpFrameBytes + wire::kHeaderBytes + payload_bytes;
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
  fmt::print("{}\n", json.dump());
  return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("bench"));
  Options options;
  int status = 0;
  return parse(argc, argv, options, status) ? run(options) : status;
}

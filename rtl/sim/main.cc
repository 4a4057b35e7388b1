// netfold-rtl: runs the hardware of rtl/, Verilated, and prints one JSON object. `netfold rtl` calls it.
#include <chrono>
#include <cstdio>
#include <exception>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "failures.h"
#include "modules.h"
#include "rings.h"

namespace {

using namespace netfold::rtl;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

nlohmann::json bench_ring(const RingRun& run) {
  const double start = seconds();
  const RingResult result = run_ring(run);
  return {{"world", run.world},
          {"format", run.bfp ? "bfp" : "fp32"},
          {"lanes", kLanes},
          {"counts", run.counts},
          {"bytes_per_cycle", run.ethernet.bytes_per_cycle},
          {"latency", run.ethernet.latency},
          {"cycles", result.cycles},
          {"differences", result.differences},
          {"failed", result.failed},
          {"counters", result.counters},
          {"wall_s", seconds() - start}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs the Verilated hardware of rtl/ and prints one JSON object.");
  app.require_subcommand(1);

  ModuleRun module;
  auto* const modules = app.add_subcommand("module", "Compare an arithmetic module with the reference kernels.");
  modules->add_option("name", module.module, "fold, encode or decode")->required();
  modules->add_option("--values", module.values, "numbers")->default_val(100000);
  modules->add_option("--seed", module.seed)->default_val(1);
  modules->add_option("--idle", module.idle, "probability that a cycle has no input")->default_val(0.0);
  modules->add_option("--stall", module.stall, "probability that a cycle accepts no output")->default_val(0.0);

  unsigned runs = 10, world_max = 8;
  std::uint32_t count_max = 4096;
  double loss = 0.02;
  std::uint64_t seed = 1;
  auto* const rings = app.add_subcommand("rings", "Compare random rings with the software's.");
  rings->add_option("--runs", runs);
  rings->add_option("--world-max", world_max)->check(CLI::Range(2, 32));
  rings->add_option("--count-max", count_max);
  rings->add_option("--loss", loss, "largest probability of loss, and of damage, repetition and delay");
  rings->add_option("--seed", seed);

  RingRun ring;
  auto* const one = app.add_subcommand("ring", "Time one ring.");
  one->add_option("--world", ring.world)->check(CLI::Range(2, 32));
  one->add_option("--counts", ring.counts, "elements of each request")->delimiter(',');
  one->add_flag("--bfp", ring.bfp);
  one->add_option("--bytes-per-cycle", ring.ethernet.bytes_per_cycle, "rate of a port; 0: a beat");
  one->add_option("--latency", ring.ethernet.latency, "cycles through the switch");
  one->add_option("--loss", ring.ethernet.loss);
  one->add_option("--seed", ring.seed);

  auto* const failures = app.add_subcommand("failures", "Run requests that cannot finish.");

  CLI11_PARSE(app, argc, argv);
  try {
    nlohmann::json result;
    if (*modules) result = run_module(module);
    if (*rings) result = run_rings(runs, world_max, count_max, loss, seed);
    if (*one) result = bench_ring(ring);
    if (*failures) result = {{"cases", run_failures()}};
    fmt::print("{}\n", result.dump());
  } catch (const std::exception& error) {
    fmt::print(stderr, "netfold-rtl: {}\n", error.what());
    return 1;
  }
  return 0;
}

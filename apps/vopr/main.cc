// netfold-vopr: a whole cluster in virtual time, from a seed (core/testing/cluster.h).
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "seeds.h"
#include "testing/cluster.h"

namespace {

using netfold::testing::Cluster;
using netfold::testing::Outcome;
using netfold::testing::Wishes;

struct Options {
  std::uint64_t seed = 0, count = 1000;
  std::string from = "0", file;
  int processes = 1;
  bool is_verbose = false, until_failure = false;
  Wishes wishes;
  std::vector<std::string> without;
};

std::string describe(const Outcome& outcome) {
  return outcome.violation ? fmt::format("{}: {}", outcome.violation->checker, outcome.violation->what) : "";
}

// The one line that replays a seed.
std::string replay_line(std::uint64_t seed, const Options& options) {
  std::string line = fmt::format("netfold-vopr {}", seed);
  const auto add = [&](const char* name, const std::optional<int>& value) {
    if (value) line += fmt::format(" {} {}", name, *value);
  };
  add("--world", options.wishes.world);
  add("--cluster-jobs", options.wishes.jobs);
  add("--shards", options.wishes.shards);
  add("--lives", options.wishes.lives);
  if (!options.without.empty()) line += fmt::format(" --without {}", fmt::join(options.without, ","));
  return line;
}

void print_failure(std::uint64_t seed, const std::string& what, const Options& options) {
  fmt::print("seed {} failed: {}\n  replay: {} --verbose\n", seed, what, replay_line(seed, options));
}

int run_one(const Options& options) {
  const auto plan = netfold::testing::draw_plan(options.seed, options.wishes);
  if (options.is_verbose) fmt::print("{}", netfold::testing::to_string(plan));
  std::function<void(const std::string&)> on_line;
  if (options.is_verbose) {
    on_line = [](const std::string& line) {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
  }
  const Outcome outcome = Cluster(plan, on_line).run();
  fmt::print("{} lives of jobs, {} events, {:.3f} s of virtual time\n", outcome.lives, outcome.events,
             netfold::to_seconds(outcome.virtual_time));
  if (!outcome.violation) return 0;
  print_failure(options.seed, describe(outcome), options);
  return 1;
}

// One seed a line; the rest of the line names the bug that it has found.
std::vector<std::uint64_t> read_seeds(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::uint64_t> seeds;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') seeds.push_back(std::stoull(line));
  }
  return seeds;
}

int run_many(const Options& options) {
  netfold::vopr::SeedRun wanted;
  wanted.processes = options.processes;
  wanted.stops_at_failure = options.until_failure;
  if (!options.file.empty()) {
    wanted.seeds = read_seeds(options.file);
  } else {
    const std::uint64_t first = options.from == "random" ? std::random_device()() : std::stoull(options.from);
    fmt::print("{} seeds from {} on\n", options.count, first);
    for (std::uint64_t n = 0; n < options.count; ++n) wanted.seeds.push_back(first + n);
  }
  const netfold::Nanoseconds start = netfold::now();
  const auto [passed, failed] = netfold::vopr::run_seeds(
      wanted,
      [&](std::uint64_t seed) { return describe(Cluster(netfold::testing::draw_plan(seed, options.wishes)).run()); },
      [&](std::uint64_t seed, const std::string& what) { print_failure(seed, what, options); });
  const double took_s = netfold::to_seconds(netfold::now() - start);
  fmt::print("{} passed, {} failed ({:.1f} s, {:.0f} a minute)\n", passed, failed, took_s,
             60 * static_cast<double>(passed + failed) / took_s);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Runs a whole cluster in virtual time, drawn from a seed, and checks what it does."};
  auto* const seed = app.add_option("seed", options.seed, "Run this one seed");
  auto* const seeds = app.add_option("--seeds", options.count, "Run so many seeds")->excludes(seed);
  app.add_option("--from", options.from, "First of the seeds, or 'random'")->needs(seeds);
  auto* const file = app.add_option("--file", options.file, "Run the seeds of this file, one a line")
                         ->check(CLI::ExistingFile)
                         ->excludes(seed)
                         ->excludes(seeds);
  app.add_option("--jobs", options.processes, "Processes that share the seeds")->check(CLI::Range(1, 64));
  app.add_flag("--until-failure", options.until_failure, "Stop at the first seed that fails");
  app.add_flag("--verbose", options.is_verbose, "Print the plan and everything that happens")->needs(seed);
  app.add_option("--world", options.wishes.world, "Ranks of each job")->check(CLI::Range(1, 64));
  app.add_option("--cluster-jobs", options.wishes.jobs, "Jobs at most")->check(CLI::Range(1, 8));
  app.add_option("--shards", options.wishes.shards, "Shards of the switch")->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--lives", options.wishes.lives, "How often each rank starts while there are faults")
      ->check(CLI::Range(1, 100));
  app.add_option("--without", options.without, "Faults to leave out")
      ->delimiter(',')
      ->check(CLI::IsMember(netfold::testing::fault_names()));
  CLI11_PARSE(app, argc, argv);
  if (seed->empty() && seeds->empty() && file->empty()) {
    fmt::print(stderr, "say which seed to run, or how many: netfold-vopr 1234, netfold-vopr --seeds 1000\n");
    return 2;
  }
  options.wishes.without.insert(options.without.begin(), options.without.end());
  return seed->empty() ? run_many(options) : run_one(options);
}

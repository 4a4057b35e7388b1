#include "switch_bench/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cstdlib>

#include "link/dpdk/dpdk.h"
#include "link/link.h"

namespace netfold::apps {
namespace {

struct Words {
  std::string format = "fp32", faults, address;
};

void declare(CLI::App& app, Words& words, Options& options) {
  auto& bench = options.bench;
  app.add_option("--device", options.devices)->take_all()->allow_extra_args(false);
  app.add_option("--protocol", options.protocol)->check(CLI::IsMember({"netfold", "pcie", "roce"}));
  app.add_option("--layout", options.layout)->check(CLI::IsMember({"run-to-completion", "per-port"}));
  app.add_option("--workers", bench.workers)->check(CLI::Range(1, 64));
  app.add_option("--gradients", bench.gradients)->check(CLI::Range(0, 7000));
  app.add_option("--format", words.format)->check(CLI::IsMember({"fp32", "fp16", "bf16", "int32", "bfp"}));
  app.add_option("--window", bench.window)->check(CLI::Range(1, 4096));
  app.add_option("--rate-gbit-s", bench.rate_gbit_s)->check(CLI::NonNegativeNumber);
  app.add_option("--plain", bench.plain)->check(CLI::Range(0.0, 0.99));
  app.add_option("--plain-bytes", bench.plain_bytes)->check(CLI::Range(60, 1514));
  app.add_option("--frames", bench.frames);
  app.add_option("--chunks-a-job", bench.chunks_a_job);
  app.add_option("--faults", words.faults);
  app.add_option("--seed", bench.seed);
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64));
  app.add_option("--cores", options.cores)->delimiter(',');
  app.add_option("--buffers", options.buffers);
  app.add_option("--queue-frames", options.queue_frames);
  app.add_option("--eal", options.eal)->allow_extra_args(false);
  app.add_flag("--search", options.search);
  app.add_option("--search-to-gbit-s", options.search_to_gbit_s);
  auto& join = options.cables.join;
  app.add_option("--switch", join.switch_address);
  app.add_option("--address", words.address);
  app.add_option("--job", join.job);
  app.add_flag("--require-auth", join.require_auth);
  app.add_option("--mtu", join.mtu);
  app.add_option("--timeout-s", join.timeout_s);
}

Result<void> complete_cables(const Words& words, Options& options) {
  CableOptions& cables = options.cables;
  if (cables.join.switch_address.empty() || words.address.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--device {}: say which switch is at the other end (--switch HOST:PORT) and what address "
                            "the first worker has there (--address IP; the next workers have the next ones)",
                            options.devices[0]));
  }
  auto first = link::parse_address(words.address + ":1");
  if (!first) return fail(ErrorCode::kInvalidArgument, fmt::format("--address: {}", first.error().message));
  cables.first_address = first->ip.v4();
  cables.format = options.bench.format;
  cables.gradients = options.bench.gradients;
  cables.seed = options.bench.seed;
  cables.join.window = options.bench.window;
  cables.join.connect_timeout_s = cables.join.timeout_s;
  const char* const secret = std::getenv("NETFOLD_SECRET");
  if (secret != nullptr) cables.join.secret = secret;
  return {};
}

Result<void> complete(const Words& words, Options& options) {
  options.bench.format = *numbers::format_named(words.format);
  if (!options.is_ring()) return complete_cables(words, options);
  if (!words.faults.empty()) {
    auto faults = link::parse_faults(words.faults);
    if (!faults) return tl::unexpected(faults.error());
    options.bench.faults = *faults;
  }
  if (options.bench.window == 0) options.bench.window = kWindowInMemory;
  if (!std::has_single_bit(options.bench.window)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--window {}: it must be a power of two", options.bench.window));
  }
  return {};
}

}  // namespace

bool Options::is_ring() const {
  return devices.size() == 1 && devices[0] == link::kRingDevice;
}

Result<std::optional<Options>> parse_command_line(int argc, char** argv) {
  Options options;
  options.bench.window = 0;
  options.cables.join.job = "bench";
  Words words;
  CLI::App app("Measures the folding of one core, or of a switch at the other end; prints JSON.",
               "netfold-switch-bench");
  declare(app, words, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return std::nullopt;
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
  if (auto completed = complete(words, options); !completed) return tl::unexpected(completed.error());
  return options;
}

}  // namespace netfold::apps

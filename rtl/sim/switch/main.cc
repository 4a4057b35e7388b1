// netfold-rtl-switch: runs the Verilated switch and prints one JSON object. `netfold rtl switch` calls it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <string>

#include "switch/endpoints.h"
#include "switch/mixture.h"
#include "switch/scenes.h"
#include "switch/switch_device.h"

namespace {

using namespace netfold::rtl;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void add_job(CLI::App& app, JobOptions& job, std::string& format) {
  app.add_option("--format", format, "fp32, int32 or bfp")->check(CLI::IsMember({"fp32", "int32", "bfp"}));
  app.add_flag("--wild", job.is_wild, "numbers of any bits");
  app.add_option("--first-psn", job.first_psn, "of the first connection");
  app.add_option("--packets", job.packets, "of a message")->check(CLI::Range(2, 128));
  app.add_option("--last-bytes", job.last_bytes, "of a message's last packet");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs the Verilated switch and prints one JSON object.");
  app.require_subcommand(1);

  MixtureRun mixture;
  unsigned runs = 1;
  std::string format;
  auto* const mixtures = app.add_subcommand("mixture", "Random frames of every kind, one at a time, as the software.");
  mixtures->add_option("--runs", runs, "jobs of random shape");
  mixtures->add_option("--frames", mixture.frames, "a run");
  mixtures->add_option("--format", format, "fp32, int32 or bfp; \"\": at random");
  mixtures->add_option("--workers", mixture.workers, "0: at random");
  mixtures->add_option("--loss", mixture.loss);
  mixtures->add_option("--seed", mixture.seed, "of the first run; alone, exactly this run");
  mixtures->add_flag("--verbose", mixture.is_verbose, "a line a frame on standard error");

  Scene scene;
  bool is_ring = false;
  auto* const scenes = app.add_subcommand("scene", "Workers at line rate, timed.");
  add_job(*scenes, scene.job, format);
  scenes->add_option("--world", scene.world, "workers; 0: one a port");
  scenes->add_option("--messages", scene.workers.messages, "of each worker; of a ring: of each segment");
  scenes->add_flag("--ring", is_ring, "a ring all-reduce through the forwarding ports, not a fold");
  scenes->add_option("--host-time", scene.workers.host_time, "of a worker, between messages, in units of 100 ps");
  scenes->add_flag("--stepwise", scene.workers.is_stepwise, "a ring's step begins when the one before has come whole");
  scenes->add_option("--plain-every", scene.workers.plain_every, "a plain frame for so many contributions; 0: none");
  scenes->add_option("--repeat-every", scene.workers.repeat_every, "a contribution once more; 0: none");
  scenes->add_option("--plain-bytes", scene.workers.plain_bytes);
  scenes->add_flag("!--unacknowledged", scene.workers.acknowledges, "cables carry no acknowledgements");
  scenes->add_option("--load", scene.workers.load, "of the line")->check(CLI::Range(0.01, 1.0));
  scenes->add_flag("--pause", scene.pauses, "the switch sends pause frames");
  scenes->add_option("--skew", scene.skew, "of the ports' clocks, in units of 100 ps");
  scenes->add_option("--pcap", scene.pcap_path, "captures PATH.<port>.pcap of what leaves");
  scenes->add_flag("!--uncompared", scene.is_compared, "not beside the software's switch");
  scenes->add_option("--seed", scene.workers.seed);

  EndpointsRun endpoints;
  auto* const lossy = app.add_subcommand("lossy", "The software's endpoints on cables that lose frames.");
  add_job(*lossy, endpoints.job, format);
  lossy->add_option("--messages", endpoints.messages, "of each worker");
  lossy->add_option("--loss", endpoints.loss)->check(CLI::Range(0.0, 0.5));
  lossy->add_option("--damage", endpoints.damage, "frames to the switch whose FCS is wrong")
      ->check(CLI::Range(0.0, 0.5));
  lossy->add_option("--stall", endpoints.stall, "frames after which a neighbour takes nothing for up to 10 us");
  lossy->add_flag("--go-back", endpoints.goes_back, "receivers ask as NICs do: for all from the first missing on");
  lossy->add_flag("--pause", endpoints.pauses, "the switch sends pause frames");
  lossy->add_option("--seed", endpoints.seed);

  CLI11_PARSE(app, argc, argv);
  try {
    const double start = seconds();
    mixture.format = netfold::numbers::format_named(format);
    const netfold::numbers::WireFormat wire{mixture.format.value_or(netfold::numbers::Format::kFp32)};
    nlohmann::json result;
    if (*mixtures) result = run_mixtures(runs, mixture);
    if (*scenes) {
      scene.job.format = wire;
      scene.job.seed = scene.workers.seed;
      if (is_ring) {
        const unsigned world = scene.world == 0 ? SwitchDevice::kPorts : scene.world;
        scene.job.is_folded = false;
        scene.workers.lag = scene.workers.messages;
        scene.workers.messages *= 2 * (world - 1);
      }
      result = run_scene(scene);
    }
    if (*lossy) {
      endpoints.job.format = wire;
      endpoints.job.seed = endpoints.seed;
      result = run_endpoints(endpoints);
    }
    const double wall_s = seconds() - start;
    result["port_count"] = SwitchDevice::kPorts;
    result["wall_s"] = wall_s;
    result["cycles_per_s"] = static_cast<double>(result["cycles"]) / wall_s;
    fmt::print("{}\n", result.dump());
  } catch (const std::exception& error) {
    fmt::print(stderr, "netfold-rtl-switch: {}\n", error.what());
    return 1;
  }
  return 0;
}

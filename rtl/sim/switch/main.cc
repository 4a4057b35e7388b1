// netfold-rtl-switch: runs the Verilated switch and prints one JSON object. `netfold rtl switch` calls it.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <string>

#include "switch/endpoints.h"
#include "switch/mixture.h"
#include "switch/scenes.h"
#include "switch/switch_device.h"

namespace {

using namespace netfold::rtl;

constexpr const char* kFormats = "fp32, int32, bfp, fp16 or bf16";

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void add_version(CLI::App& app, unsigned& version, const char* help) {
  app.add_option("--version", version, help)->check(CLI::Range(1, 2));
}

void add_job(CLI::App& app, JobOptions& job, std::string& format, unsigned& version) {
  add_version(app, version, "of RoCE: 1, or 2 over IPv4 and UDP");
  app.add_option("--format", format, kFormats)->check(CLI::IsMember({"fp32", "int32", "bfp", "fp16", "bf16"}));
  app.add_flag("--one-way", job.has_one_way, "some messages go to one rank, or come from one");
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
  unsigned version = 0;
  auto* const mixtures =
      app.add_subcommand("mixture", "Send random frames of every kind, one at a time, and compare with the software.");
  mixtures->add_option("--runs", runs, "number of random jobs");
  mixtures->add_option("--frames", mixture.frames, "a run");
  mixtures->add_option("--format", format, std::string(kFormats) + "; \"\": at random");
  add_version(*mixtures, version, "of RoCE; without it, at random for each run");
  mixtures->add_option("--workers", mixture.workers, "0: at random");
  mixtures->add_option("--loss", mixture.loss);
  mixtures->add_option("--seed", mixture.seed, "of the first run; without --runs, of the only run");
  mixtures->add_flag("--verbose", mixture.is_verbose, "print a line for each frame on standard error");

  Scene scene;
  bool is_ring = false;
  auto* const scenes = app.add_subcommand("scene", "Time workers at line rate.");
  add_job(*scenes, scene.job, format, version);
  scenes->add_option("--world", scene.world, "workers; 0: one per port");
  scenes->add_option("--messages", scene.workers.messages, "of each worker; of a ring: of each segment");
  scenes->add_flag("--ring", is_ring, "a ring all-reduce through the forwarding ports, not a fold");
  scenes->add_option("--host-time", scene.workers.host_time, "time of a worker between messages, in units of 100 ps");
  scenes->add_flag("--stepwise", scene.workers.is_stepwise, "a ring's step begins when the step before is complete");
  scenes->add_option("--plain-every", scene.workers.plain_every,
                     "a plain frame after this number of contributions; 0: never");
  scenes->add_option("--repeat-every", scene.workers.repeat_every,
                     "a repeated contribution after this number of them; 0: never");
  scenes->add_option("--plain-bytes", scene.workers.plain_bytes);
  scenes->add_flag("!--unacknowledged", scene.workers.acknowledges, "cables carry no acknowledgements");
  scenes->add_option("--load", scene.workers.load, "of the line")->check(CLI::Range(0.01, 1.0));
  scenes->add_flag("--pause", scene.pauses, "the switch sends pause frames");
  scenes->add_option("--skew", scene.skew, "of the ports' clocks, in units of 100 ps");
  scenes->add_option("--pcap", scene.pcap_path, "capture the frames that leave in PATH.<port>.pcap");
  scenes->add_flag("!--uncompared", scene.is_compared, "do not compare with the software's switch");
  scenes->add_option("--seed", scene.workers.seed);

  EndpointsRun endpoints;
  auto* const lossy = app.add_subcommand("lossy", "Run the software's endpoints on cables that lose frames.");
  add_job(*lossy, endpoints.job, format, version);
  lossy->add_option("--messages", endpoints.messages, "of each worker");
  lossy->add_option("--loss", endpoints.loss)->check(CLI::Range(0.0, 0.5));
  lossy->add_option("--damage", endpoints.damage, "fraction of frames to the switch with a wrong FCS")
      ->check(CLI::Range(0.0, 0.5));
  lossy->add_option("--stall", endpoints.stall, "frames after which a neighbour accepts no frames for up to 10 us");
  lossy->add_flag("--go-back", endpoints.goes_back,
                  "receivers request all frames from the first missing one on, as NICs do");
  lossy->add_flag("--pause", endpoints.pauses, "the switch sends pause frames");
  lossy->add_option("--seed", endpoints.seed);

  CLI11_PARSE(app, argc, argv);
  try {
    const double start = seconds();
    mixture.format = netfold::numbers::format_named(format);
    const netfold::numbers::WireFormat wire{mixture.format.value_or(netfold::numbers::Format::kFp32)};
    if (version != 0) {
      const auto chosen = static_cast<netfold::wire::roce::Version>(version);
      mixture.version = scene.job.version = endpoints.job.version = chosen;
    }
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

// netfold-switch: the program behind `netfold switch`. Arguments in, a switch up, a signal, the switch down.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "descriptors.h"
#include "end_signals.h"
#include "switch/metrics.h"
#include "switch/options.h"
#include "switch/switch_server.h"

namespace {

using namespace netfold;

int complain(const Error& error) {
  fmt::print(stderr, "netfold switch: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

void log_line(switching::LogLevel level, const std::string& text) {
  spdlog::log(level == switching::LogLevel::kWarning ? spdlog::level::warn : spdlog::level::info, "{}", text);
}

// Sockets, or the frames of devices that DPDK drives: then `plane` is set to the data plane that the server owns.
switching::DataPlaneFactory data_plane_of(const std::optional<apps::FrameSwitchOptions>& frames,
                                          switching::FramePlane*& plane) {
  if (!frames) return {};
  switching::DataPlaneFactory factory;
  factory.start = [&frames, &plane](
                      const switching::DataPlaneOptions&,
                      switching::DataPlane::OnMismatch on_mismatch) -> Result<std::unique_ptr<switching::DataPlane>> {
    auto devices = link::open_dpdk(frames->dpdk);
    if (!devices) return tl::unexpected(devices.error());
    auto started = switching::start_frame_plane(frames->plane, std::move(*devices), std::move(on_mismatch));
    if (!started) return tl::unexpected(started.error());
    plane = started->get();
    return std::move(*started);
  };
  const std::size_t room_bytes = frames->dpdk.devices.room_bytes;
  factory.memory_bytes = [room_bytes](const wire::Lease& lease) {
    return switching::frame_memory_bytes(lease, room_bytes);
  };
  return factory;
}

int run(apps::SwitchOptions options) {
  const apps::EndSignals signals("switch");
  signal(SIGPIPE, SIG_IGN);
  apps::allow_many_descriptors();

  options.server.log = log_line;
  if (options.frames) options.frames->plane.log = log_line;
  const bool tagged = options.server.require_auth, closed = !options.server.secret.empty();
  switching::FramePlane* frames = nullptr;
  auto server = switching::SwitchServer::start(std::move(options.server), data_plane_of(options.frames, frames));
  if (!server) return complain(server.error());
  std::unique_ptr<apps::Metrics> metrics;
  if (options.metrics) {
    auto started = apps::Metrics::start(*options.metrics, **server, frames);
    if (!started) return complain(started.error());
    metrics = std::move(*started);
    fmt::print("metrics on http://{}/metrics\n", link::to_string(metrics->address()));
  }
  spdlog::info("workers {}, packets {}", closed ? "must know the secret" : "need no secret",
               tagged ? "are tagged" : "carry no tag");
  fmt::print("listening on {}\n", link::to_string((*server)->address()));
  std::fflush(stdout);

  int signal_number = 0;
  while (sigwait(&signals.waited_for(), &signal_number) == 0 && !signals.is_end(signal_number)) {
  }
  spdlog::info("stopping: {} came", signal_number == SIGINT ? "Ctrl-C" : "SIGTERM");
  metrics.reset();
  (*server)->stop();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("switch"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  auto parsed = apps::parse_command_line(argc, argv);
  if (!parsed.options) return parsed.exit_status;
  spdlog::set_level(spdlog::level::from_str(parsed.options->log_level));
  return run(std::move(*parsed.options));
}

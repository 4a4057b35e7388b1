// netfold-switch: the program behind `netfold switch`. Arguments in, a switch up, a signal, the switch down.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "descriptors.h"
#include "engine/switch_server.h"
#include "switch/metrics.h"
#include "switch/options.h"

namespace {

using namespace netfold;

int complain(const Error& error) {
  fmt::print(stderr, "netfold switch: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

void log_line(jobs::LogLevel level, const std::string& text) {
  spdlog::log(level == jobs::LogLevel::kWarning ? spdlog::level::warn : spdlog::level::info, "{}", text);
}

// Sockets, or the frames of devices that DPDK drives.
engine::DataPlaneFactory data_plane_of(const std::optional<apps::FrameSwitchOptions>& frames) {
  if (!frames) return {};
  engine::DataPlaneFactory factory;
  factory.start = [&frames](const engine::DataPlaneOptions&,
                            engine::DataPlane::OnMismatch on_mismatch) -> Result<std::unique_ptr<engine::DataPlane>> {
    auto devices = link::open_dpdk(frames->dpdk);
    if (!devices) return tl::unexpected(devices.error());
    return engine::start_frame_plane(frames->plane, std::move(*devices), std::move(on_mismatch));
  };
  const std::size_t room_bytes = frames->dpdk.devices.room_bytes;
  factory.memory_bytes = [room_bytes](const wire::Lease& lease) {
    return engine::frame_memory_bytes(lease, room_bytes);
  };
  return factory;
}

int run(apps::SwitchOptions options) {
  // Threads inherit this mask, so that the signals come to sigwait() below and nowhere else.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  apps::allow_many_descriptors();

  options.server.log = log_line;
  if (options.frames) options.frames->plane.log = log_line;
  const bool tagged = options.server.require_auth, closed = !options.server.secret.empty();
  auto server = engine::SwitchServer::start(std::move(options.server), data_plane_of(options.frames));
  if (!server) return complain(server.error());
  std::unique_ptr<apps::Metrics> metrics;
  if (options.metrics) {
    auto started = apps::Metrics::start(*options.metrics, **server);
    if (!started) return complain(started.error());
    metrics = std::move(*started);
    fmt::print("metrics on http://{}/metrics\n", link::to_string(metrics->address()));
  }
  spdlog::info("workers {}, packets {}", closed ? "must know the secret" : "need no secret",
               tagged ? "are tagged" : "carry no tag");
  fmt::print("listening on {}\n", link::to_string((*server)->address()));
  std::fflush(stdout);

  int signal_number = 0;
  sigwait(&ends, &signal_number);
  pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);  // the next one ends the program at once
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

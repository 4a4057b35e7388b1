// netfold-switch: the program behind `netfold switch`. Arguments in, a switch up, a signal, the switch down.
#include <fmt/core.h>
#include <malloc.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <string>

#include "base/log.h"
#include "base/wakeup.h"
#include "descriptors.h"
#include "end_signals.h"
#include "link/descriptor.h"
#include "switch/metrics.h"
#include "switch/options.h"
#include "switch/service_manager.h"
#include "switch/switch_server.h"

namespace {

using namespace netfold;

constexpr const char* kByOperator = "the switch was shut down by its operator";

int complain(const Error& error) {
  fmt::print(stderr, "netfold switch: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

void log_line(const switching::LogLine& line) {
  log::line(line.level == switching::LogLevel::kWarning ? log::Level::kWarning : log::Level::kInfo, "{}",
            fmt::make_format_args(line.text), line.job);
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

// SIGHUP: reads the secret and the log level again. Other changes of the command line's files count at the next start.
void reload(switching::SwitchServer& server, int argc, char** argv) {
  const auto options = apps::read_again(argc, argv);
  if (!options) {
    log::error("SIGHUP came, but nothing was reloaded: {}", options.error().message);
    return;
  }
  log::set_level(options->log_level);
  const std::string& secret = options->server.secret;
  if (!secret.empty()) server.renew_secret(secret);
  apps::warn_if_others_may_read(options->secret_file);
  log::info("SIGHUP came: the log level is {}{}; all else is as before", options->log_level,
            secret.empty() ? "" : ", the secret file was read again");
}

// Does what signals ask for, until the switch is to end. Returns why.
std::string serve(switching::SwitchServer& server, const apps::EndSignals& signals, const Wakeup& drained,
                  double drain_s, const std::function<void()>& on_hangup) {
  const link::Descriptor came(signalfd(-1, &signals.waited_for(), SFD_CLOEXEC));
  bool is_draining = false;
  while (true) {
    std::array<pollfd, 2> descriptors{{{came.get(), POLLIN, 0}, {drained.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, kNever);
    if (descriptors[1].revents != 0) {
      log::info("stopping: {}", server.stats().jobs.empty() ? "all jobs have ended"
                                                            : fmt::format("the {} s of --drain-s are over", drain_s));
      return fmt::format("{}, who gave running jobs {} s to end,", kByOperator, drain_s);
    }
    signalfd_siginfo signal{};
    if (read(came.get(), &signal, sizeof signal) != sizeof signal) continue;
    const int number = static_cast<int>(signal.ssi_signo);
    if (number == SIGHUP) {
      on_hangup();
    } else if (number == SIGTERM && drain_s > 0 && !is_draining) {
      is_draining = true;
      log::info(
          "draining: SIGTERM came. No new job is taken, and running jobs may go on for {} s; a second SIGTERM "
          "stops the switch at once",
          drain_s);
      apps::tell_service_manager("STOPPING=1\nSTATUS=draining: running jobs go on, new jobs are refused");
      server.drain(from_seconds(drain_s));
    } else {
      log::info("stopping: {} came", number == SIGINT ? "Ctrl-C" : "SIGTERM");
      return kByOperator;
    }
  }
}

int run(apps::SwitchOptions options, int argc, char** argv) {
  const apps::EndSignals signals("switch");
  signal(SIGPIPE, SIG_IGN);
  apps::allow_many_descriptors();
  apps::warn_if_others_may_read(options.secret_file);
  apps::warn_if_others_may_read(options.parent_secret_file);

  Wakeup drained;
  options.server.log = log_line;
  options.server.on_drained = [&drained] { drained.wake(); };
  if (options.frames) options.frames->plane.log = log_line;
  if (!options.server.parent.empty()) {
    log::info("the switch above is {}; a job whose ranks are all here does without it", options.server.parent);
  }
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
  log::info("workers {}, packets {}", closed ? "must know the secret" : "need no secret",
            tagged ? "are tagged" : "carry no tag");
  fmt::print("listening on {}\n", link::to_string((*server)->address()));
  std::fflush(stdout);
  apps::tell_service_manager("READY=1\nSTATUS=listening on " + link::to_string((*server)->address()));

  const std::string why = serve(**server, signals, drained, options.drain_s, [&] { reload(**server, argc, argv); });
  signals.end_at_next();
  apps::tell_service_manager("STOPPING=1");
  metrics.reset();
  (*server)->stop(why);
  return 0;
}

// A job's memory goes back to the system with the job. Otherwise malloc takes the size of each large block that is
// freed for usual, and keeps as much as twice the largest.
void give_memory_back() {
#ifdef __GLIBC__
  constexpr int kLargeBytes = 256 << 10;
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  mallopt(M_TRIM_THRESHOLD, kLargeBytes);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  give_memory_back();
  log::set_up("switch");
  auto parsed = apps::parse_command_line(argc, argv);
  if (!parsed.options) return parsed.exit_status;
  log::set_level(parsed.options->log_level);
  if (parsed.options->log_format == "json") log::write_json();
  return run(std::move(*parsed.options), argc, argv);
}

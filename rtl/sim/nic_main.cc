// netfold-nic: the program behind `netfold rtl nic`. A socket, and a NIC behind it, until a signal or the end of a
// process.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "end_signals.h"
#include "nic_server.h"

namespace {

using namespace netfold;

int complain(const std::string& message) {
  fmt::print(stderr, "netfold nic: {}\n", message);
  return 1;
}

int serve(rtl::NicServer& server, const apps::EndSignals& signals, int process) {
  const int signalled = signalfd(-1, &signals.waited_for(), SFD_CLOEXEC | SFD_NONBLOCK);
  for (;;) {
    server.turn();
    std::vector<pollfd> polls{{signalled, POLLIN, 0}, {process, POLLIN, 0}};
    server.add_polls(polls);
    wait_for(polls, server.deadline(now()));
    if (polls[1].revents != 0) return 0;
    signalfd_siginfo signal{};
    if (polls[0].revents != 0 && read(signalled, &signal, sizeof signal) == sizeof signal &&
        signals.is_end(static_cast<int>(signal.ssi_signo))) {
      return 0;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  log::set_up("nic");
  CLI::App app("A simulated smart NIC behind a socket that speaks vfio-user.");
  std::string socket, log_level = "info";
  rtl::CableOptions cable;
  pid_t end_with = 0;
  app.add_option("--socket", socket, "Path to listen at")->required();
  auto* const interface = app.add_option("--interface", cable.interface, "Interface that carries its frames");
  app.add_option("--ip", cable.ip, "IPv4 address of this machine, for frames in UDP")->excludes(interface);
  app.add_option("--faults", cable.faults, "Faults of the frames that it sends, such as loss=0.01,seed=7");
  app.add_option("--end-with", end_with, "Stop when the process PID ends");
  app.add_option("--log-level", log_level, "debug, info, warn or error");
  CLI11_PARSE(app, argc, argv);
  log::set_level(log_level);

  const apps::EndSignals signals("NIC");
  int process = -1;
  if (end_with != 0) {
    process = static_cast<int>(syscall(SYS_pidfd_open, end_with, 0));
    if (process < 0) return complain(fmt::format("--end-with {}: {}", end_with, std::strerror(errno)));
  }
  auto server = rtl::NicServer::open(socket, cable);
  if (!server) return complain(server.error().message);
  fmt::print("listening at {}\n", server->path());
  std::fflush(stdout);
  return serve(*server, signals, process);
}

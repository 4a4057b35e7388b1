// netfold-agent: the program behind `netfold agent`. Arguments in, an agent up, a signal or the end of its worker, the
// agent down.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "agent/options.h"
#include "base/log.h"
#include "descriptors.h"
#include "end_signals.h"
#include "group/via_agent/agent.h"

namespace {

using namespace netfold;

int complain(const std::string& message) {
  fmt::print(stderr, "netfold agent: {}\n", message);
  return 1;
}

// Of the whole process: threads that are started later inherit it.
bool stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return cores.empty() || sched_setaffinity(0, sizeof set, &set) == 0;
}

// Blocks until a signal comes that ends the agent, or the process has ended, and says which.
std::string wait_for_the_end(const apps::EndSignals& signals, int process) {
  std::array<pollfd, 2> polls{{{signalfd(-1, &signals.waited_for(), SFD_CLOEXEC), POLLIN, 0}, {process, POLLIN, 0}}};
  for (signalfd_siginfo signal{};;) {
    while (poll(polls.data(), polls.size(), -1) < 0 && errno == EINTR) {
    }
    if (polls[0].revents == 0 || read(polls[0].fd, &signal, sizeof signal) != sizeof signal) {
      return "ended with its process";
    }
    if (signals.is_end(static_cast<int>(signal.ssi_signo))) {
      return signal.ssi_signo == SIGINT ? "was stopped by Ctrl-C" : "was stopped by SIGTERM";
    }
  }
}

int run(const apps::AgentOptions& options) {
  const apps::EndSignals signals("agent");
  signal(SIGPIPE, SIG_IGN);
  apps::allow_many_descriptors();

  int process = -1;
  if (options.end_with != 0) {
    process = static_cast<int>(syscall(SYS_pidfd_open, options.end_with, 0));
    if (process < 0) return complain(fmt::format("--end-with {}: {}", options.end_with, std::strerror(errno)));
  }
  if (!stay_on(options.cores)) {
    return complain(fmt::format("cannot run on cores {}: {}", fmt::join(options.cores, ","), std::strerror(errno)));
  }
  auto agent = group::Agent::start(options.socket);
  if (!agent) return complain(agent.error().message);
  fmt::print("listening at {}\n", (*agent)->address());
  std::fflush(stdout);

  const std::string why = wait_for_the_end(signals, process);
  signals.end_at_next();
  log::info("stopping: it {}", why);
  (*agent)->stop(why);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  log::set_up("agent");
  auto parsed = apps::parse_agent_command_line(argc, argv);
  if (!parsed.options) return parsed.exit_status;
  log::set_level(parsed.options->log_level);
  return run(*parsed.options);
}

#include "agent/options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

namespace netfold::apps {
namespace {

constexpr int kUsageError = 2;

constexpr const char* kDescription =
    R"(Runs collectives for the workers of this machine, in a process of its own.

A worker submits an address and a count and continues to compute. This program reads the
tensor, all-reduces it with the other ranks, and writes the sum back, as a smart NIC
does. The worker's cores do no network I/O. Each worker with NETFOLD_ENGINE=agent starts
an agent of its own. Run this program to share one agent among all workers of a machine,
on cores that you choose.)";

constexpr const char* kExamples =
    R"(Examples:
  netfold agent --cores 0,1
      Two cores for communication, the others for training:
      NETFOLD_ENGINE=agent NETFOLD_AGENT=@netfold-agent-1000 \
          taskset -c 2-27 torchrun --nproc-per-node 4 train.py

  netfold agent --socket $XDG_RUNTIME_DIR/netfold.sock
      Listens at a path; set NETFOLD_AGENT to the same path.

The agent serves only workers of its own user. It reads and writes their memory with
process_vm_readv and process_vm_writev. Where kernel.yama.ptrace_scope is 2 or 3, the
kernel allows that only to root.

The program prints "listening at SOCKET" when workers may connect, and logs to standard
error. Ctrl-C or SIGTERM stops it and informs the workers; SIGHUP does not.
Exit status: 0 (stopped), 1 (failed) or 2 (wrong usage).)";

}  // namespace

ParsedAgent parse_agent_command_line(int argc, char** argv) {
  AgentOptions options;
  options.socket = fmt::format("@netfold-agent-{}", geteuid());
  CLI::App app(kDescription, "netfold agent");
  app.footer(kExamples);
  app.get_formatter()->column_width(30);
  app.set_version_flag("--version", std::string("netfold-agent ") + NETFOLD_VERSION);
  app.add_option("--socket", options.socket, "Socket to listen at: a path, or @NAME for an abstract socket")
      ->type_name("PATH")
      ->capture_default_str();
  const long cores = sysconf(_SC_NPROCESSORS_CONF);
  app.add_option("--cores", options.cores, "CPU cores to pin to, such as 0,1 (default: not pinned)")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(0L, cores - 1).description(""));
  app.add_option("--end-with", options.end_with, "Stop when the process PID ends")
      ->type_name("PID")
      ->check(CLI::PositiveNumber.description(""));
  app.add_option("--log-level", options.log_level, "debug, info, warning or error")
      ->type_name("LEVEL")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}).description(""));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, app.exit(error) == 0 ? 0 : kUsageError};
  }
  return {std::move(options), 0};
}

}  // namespace netfold::apps

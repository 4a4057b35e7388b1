// The command line of netfold-switch-bench, which `netfold bench switch` writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "switch_bench/cable_bench.h"
#include "switch_bench/core_bench.h"

namespace netfold::apps {

struct Options {
  BenchOptions bench;
  CableOptions cables;
  std::uint16_t threads = 1;
  std::vector<int> cores;
  std::vector<std::string> devices = {"ring"};
  std::size_t buffers = 16384, queue_frames = 512;
  std::vector<std::string> eal;
  std::string protocol = "netfold", layout = "run-to-completion";
  bool search = false;
  double search_to_gbit_s = 1000;

  bool is_ring() const;  // ports in memory, with the switch in this process
};

// Nothing: help was asked for and given. The job's secret is that of the environment, NETFOLD_SECRET.
Result<std::optional<Options>> parse_command_line(int argc, char** argv);

}  // namespace netfold::apps

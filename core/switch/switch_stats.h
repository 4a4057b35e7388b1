// The statistics of a switch, and their two forms: JSON and the text format of Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "link/link.h"
#include "switch/data_plane.h"
#include "switch/jobs/job_table.h"

namespace netfold::switching {

struct JobStats {
  JobSummary summary;
  double age_s = 0;      // since it began to form, or to run
  JobCounters counters;  // all 0 while it forms
};

struct SwitchStats {
  std::string address;
  std::string parent;  // the switch above; "": none
  double uptime_s = 0;
  std::vector<std::uint16_t> udp_ports;  // one a shard
  std::vector<JobStats> jobs;
  std::vector<std::pair<std::string, std::uint64_t>> drops;  // by reason
  link::LinkStats link;
  TableCounters table;
  std::vector<ThreadUse> threads;
  bool is_draining = false;
  std::size_t connections = 0, memory_bytes = 0, memory_max_bytes = 0, jobs_max = 0;
};

nlohmann::ordered_json to_json(const SwitchStats& stats);
std::string to_prometheus(const SwitchStats& stats);

}  // namespace netfold::switching

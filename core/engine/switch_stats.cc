#include "engine/switch_stats.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace netfold::engine {
namespace {

// One list names the counters of a job, for both forms.
struct JobCounterName {
  const char* name;
  const char* help;
  std::uint64_t JobCounters::*value;
};
constexpr JobCounterName kJobCounters[] = {
    {"contributions", "Contributions of workers that were kept", &JobCounters::contributions},
    {"folded_chunks", "Chunks folded", &JobCounters::folded_chunks},
    {"results_sent", "Results sent when their chunk was folded", &JobCounters::results_sent},
    {"results_resent", "Results sent again to a worker that asked", &JobCounters::results_resent},
    {"missing_sent", "Requests to a worker to send a lost contribution again", &JobCounters::missing_sent},
    {"probes", "Probes of workers that wait for a result", &JobCounters::probes},
    {"received_bytes", "Bytes of UDP payload received", &JobCounters::received_bytes},
    {"sent_bytes", "Bytes of UDP payload sent", &JobCounters::sent_bytes},
    {"duplicates", "Contributions dropped because they were here already", &JobCounters::duplicates},
    {"stale", "Contributions dropped because their chunk is over", &JobCounters::stale},
    {"signals", "Signals to the job's host that tensors are folded", &JobCounters::signals},
};

struct LinkCounterName {
  const char* name;
  std::uint64_t link::LinkStats::*value;
};
constexpr LinkCounterName kLinkCounters[] = {
    {"sent_packets", &link::LinkStats::sent_packets},         {"sent_bytes", &link::LinkStats::sent_bytes},
    {"received_packets", &link::LinkStats::received_packets}, {"received_bytes", &link::LinkStats::received_bytes},
    {"send_errors", &link::LinkStats::send_errors},           {"system_calls", &link::LinkStats::system_calls},
};

struct TableCounterName {
  const char* name;
  std::uint64_t jobs::TableCounters::*value;
};
constexpr TableCounterName kTableCounters[] = {
    {"joins_refused", &jobs::TableCounters::joins_refused},
    {"jobs_admitted", &jobs::TableCounters::jobs_admitted},
    {"jobs_finished", &jobs::TableCounters::jobs_finished},
    {"jobs_failed", &jobs::TableCounters::jobs_failed},
};

class PrometheusText {
 public:
  void family(const std::string& name, const char* type, const std::string& help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    name_ = name;
  }
  template <class Number>
  void sample(const std::string& labels, Number value) {
    text_ += fmt::format("{}{} {}\n", name_, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_, name_;
};

// Job names hold neither quotes nor backslashes (messages.h), so they need no escape.
std::string labels_of(const JobStats& job) {
  return fmt::format("{{job=\"{}\",id=\"{}\",epoch=\"{}\"}}", job.summary.name, job.summary.job_id, job.summary.epoch);
}

nlohmann::ordered_json to_json(const NamedCounters& counted) {
  nlohmann::ordered_json json;
  json["name"] = counted.name;
  for (const auto& [name, value] : counted.counters) json[name] = value;
  return json;
}

nlohmann::ordered_json to_json(const FrameStats& frames) {
  nlohmann::ordered_json json;
  json["AGG_MODE"] = frames.agg_mode;
  json["AGG_PORT_CFG"] = fmt::format("0x{:08x}", frames.agg_port_cfg);
  json["ports"] = json["dialects"] = nlohmann::ordered_json::array();
  for (const auto& port : frames.ports) json["ports"].push_back(to_json(port));
  for (const auto& dialect : frames.dialects) json["dialects"].push_back(to_json(dialect));
  json["addresses"] = to_json(frames.addresses);
  return json;
}

// Device strings may hold anything.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c == '\n' ? ' ' : c;
  }
  return safe;
}

// One family, a sample for each counter of each port (dialect, ...).
void add(PrometheusText& text, const char* family, const char* type, const char* label, const char* help,
         const std::vector<NamedCounters>& all) {
  text.family(family, type, help);
  for (std::size_t number = 0; number < all.size(); ++number) {
    for (const auto& [name, value] : all[number].counters) {
      text.sample(
          fmt::format("{{number=\"{}\",{}=\"{}\",what=\"{}\"}}", number, label, escaped(all[number].name), name),
          value);
    }
  }
}

void add(PrometheusText& text, const FrameStats& frames) {
  if (frames.addresses.name.empty()) return;
  add(text, "netfold_switch_port", "untyped", "port", "What passed a port of the switch of frames", frames.ports);
  add(text, "netfold_switch_dialect", "untyped", "dialect", "What a dialect did and dropped", frames.dialects);
  add(text, "netfold_switch_addresses", "gauge", "table", "The table of MAC addresses", {frames.addresses});
}

}  // namespace

nlohmann::ordered_json to_json(const SwitchStats& stats) {
  nlohmann::ordered_json json;
  json["address"] = stats.address;
  json["uptime_s"] = stats.uptime_s;
  json["udp_ports"] = stats.udp_ports;
  json["connections"] = stats.connections;
  json["jobs_max"] = stats.jobs_max;
  json["memory_bytes"] = stats.memory_bytes;
  json["memory_max_bytes"] = stats.memory_max_bytes;
  for (const auto& [name, value] : kTableCounters) json[name] = stats.table.*value;
  json["jobs"] = nlohmann::ordered_json::array();
  for (const JobStats& job : stats.jobs) {
    nlohmann::ordered_json entry;
    entry["name"] = job.summary.name;
    entry["state"] = job.summary.running ? "running" : "forming";
    entry["id"] = job.summary.job_id;
    entry["epoch"] = job.summary.epoch;
    entry["world"] = job.summary.world;
    entry["present"] = job.summary.present;
    entry["left"] = job.summary.left;
    entry["slots"] = job.summary.slots;
    entry["payload_bytes"] = job.summary.payload_bytes;
    entry["memory_bytes"] = job.summary.memory_bytes;
    entry["age_s"] = job.age_s;
    for (const auto& counter : kJobCounters) entry[counter.name] = job.counters.*counter.value;
    json["jobs"].push_back(std::move(entry));
  }
  for (const auto& [reason, count] : stats.drops) json["drops"][reason] = count;
  for (const auto& [name, value] : kLinkCounters) json["link"][name] = stats.link.*value;
  if (!stats.frames.addresses.name.empty()) json["frames"] = to_json(stats.frames);
  return json;
}

std::string to_prometheus(const SwitchStats& stats) {
  PrometheusText text;
  const auto gauge = [&](const char* name, const char* help, auto value) {
    text.family(fmt::format("netfold_switch_{}", name), "gauge", help);
    text.sample("", value);
  };
  gauge("uptime_seconds", "Time since the switch started", stats.uptime_s);
  gauge("connections", "Control connections", stats.connections);
  gauge("jobs", "Jobs that form or run", stats.jobs.size());
  gauge("jobs_limit", "Jobs that are taken at most", stats.jobs_max);
  gauge("memory_bytes", "Memory that jobs hold", stats.memory_bytes);
  gauge("memory_limit_bytes", "Memory that jobs may hold", stats.memory_max_bytes);
  for (const auto& [name, value] : kTableCounters) {
    text.family(fmt::format("netfold_switch_{}_total", name), "counter", "Since the switch started");
    text.sample("", stats.table.*value);
  }
  text.family("netfold_switch_dropped_packets_total", "counter", "Data packets dropped, by reason");
  for (const auto& [reason, count] : stats.drops) text.sample(fmt::format("{{reason=\"{}\"}}", reason), count);
  for (const auto& [name, value] : kLinkCounters) {
    text.family(fmt::format("netfold_switch_link_{}_total", name), "counter", "Of all shards' sockets together");
    text.sample("", stats.link.*value);
  }
  add(text, stats.frames);
  text.family("netfold_job_workers", "gauge", "Workers of the job that are here");
  for (const JobStats& job : stats.jobs) text.sample(labels_of(job), job.summary.present.size());
  text.family("netfold_job_world", "gauge", "Workers that the job has when it is whole");
  for (const JobStats& job : stats.jobs) text.sample(labels_of(job), job.summary.world);
  text.family("netfold_job_running", "gauge", "1 if the job is admitted, 0 while it forms");
  for (const JobStats& job : stats.jobs) text.sample(labels_of(job), job.summary.running ? 1 : 0);
  for (const auto& counter : kJobCounters) {
    text.family(fmt::format("netfold_job_{}_total", counter.name), "counter", counter.help);
    for (const JobStats& job : stats.jobs) {
      if (job.summary.running) text.sample(labels_of(job), job.counters.*counter.value);
    }
  }
  return text.take();
}

}  // namespace netfold::engine

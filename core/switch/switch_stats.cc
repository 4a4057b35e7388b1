#include "switch/switch_stats.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "switch/prometheus_text.h"

namespace netfold::switching {
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
    {"duplicates", "Contributions dropped because they had arrived before", &JobCounters::duplicates},
    {"stale", "Contributions dropped because their chunk was complete", &JobCounters::stale},
    {"up_sums", "Sums sent to the switch above", &JobCounters::up_sums},
    {"up_resent", "Sums sent again to the switch above, which had lost them", &JobCounters::up_resent},
    {"up_sent_bytes", "Bytes of UDP payload sent to the switch above", &JobCounters::up_sent_bytes},
    {"up_received_bytes", "Bytes of UDP payload received from the switch above", &JobCounters::up_received_bytes},
    {"signals", "Signals to the job's host that tensors are folded", &JobCounters::signals},
};

struct LinkCounterName {
  const char* name;
  const char* help;
  std::uint64_t link::LinkStats::*value;
};
constexpr LinkCounterName kLinkCounters[] = {
    {"sent_packets", "Packets sent by all shards", &link::LinkStats::sent_packets},
    {"sent_bytes", "Bytes sent by all shards", &link::LinkStats::sent_bytes},
    {"received_packets", "Packets received by all shards", &link::LinkStats::received_packets},
    {"received_bytes", "Bytes received by all shards", &link::LinkStats::received_bytes},
    {"send_errors", "Packets that could not be sent, of all shards", &link::LinkStats::send_errors},
    {"system_calls", "System calls of all shards to send and receive", &link::LinkStats::system_calls},
};

struct TableCounterName {
  const char* name;
  const char* help;
  std::uint64_t TableCounters::*value;
};
constexpr TableCounterName kTableCounters[] = {
    {"joins_refused", "Joins refused since the switch started", &TableCounters::joins_refused},
    {"jobs_admitted", "Jobs admitted since the switch started", &TableCounters::jobs_admitted},
    {"jobs_finished", "Jobs finished since the switch started", &TableCounters::jobs_finished},
    {"jobs_failed", "Jobs failed since the switch started", &TableCounters::jobs_failed},
};

// Of a job's ranks. Values are scaled: times are counted in nanoseconds and told in seconds.
struct RankCounterName {
  const char* name;             // in JSON
  const char* prometheus_name;  // without the prefix and the suffix
  const char* help;
  std::uint64_t RankCounters::*value;
  bool is_time = false;
};
constexpr RankCounterName kRankCounters[] = {
    {"came_last", "came_last",
     "Chunks whose last contribution came from this rank (or from a switch below, and this is the lowest of its "
     "ranks): a rank that others wait for has most of them",
     &RankCounters::came_last},
    {"waited_s", "waited_seconds", "Time that at least half of the job's ranks waited for this one",
     &RankCounters::waited_ns, true},
    {"pauses", "pauses", "Waits of at least 2 ms for this rank: it computed, did not run, or its link is slow",
     &RankCounters::pauses},
    {"paused_s", "paused_seconds", "Time of those waits", &RankCounters::paused_ns, true},
    {"lost", "lost", "Packets from this rank, or to it, that were lost and asked for again", &RankCounters::lost},
};

// A count as it is; a time in seconds.
template <typename Told>
void tell(const RankCounterName& counter, const RankCounters& rank, const Told& told) {
  const std::uint64_t value = rank.*counter.value;
  if (counter.is_time) {
    told(to_seconds(static_cast<Nanoseconds>(value)));
  } else {
    told(value);
  }
}

// Job names hold neither quotes nor backslashes (messages.h), so they need no escape.
std::string labels_of(const JobStats& job, const std::string& more = "") {
  return fmt::format("{{job=\"{}\",id=\"{}\",epoch=\"{}\"{}}}", job.summary.name, job.summary.job_id, job.summary.epoch,
                     more);
}

}  // namespace

nlohmann::ordered_json to_json(const SwitchStats& stats) {
  nlohmann::ordered_json json;
  json["state"] = stats.is_draining ? "draining" : "serving";
  json["address"] = stats.address;
  if (!stats.parent.empty()) json["parent"] = stats.parent;
  json["uptime_s"] = stats.uptime_s;
  json["udp_ports"] = stats.udp_ports;
  json["connections"] = stats.connections;
  json["jobs_max"] = stats.jobs_max;
  json["memory_bytes"] = stats.memory_bytes;
  json["memory_max_bytes"] = stats.memory_max_bytes;
  for (const auto& counter : kTableCounters) json[counter.name] = stats.table.*counter.value;
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
    if (const auto& shared = job.summary.shared) {
      entry["of_switch"] = shared->of_switch;
      entry["switch_bytes_s"] = shared->switch_bytes_s;
      entry["link_bytes_s"] = shared->link_bytes_s;
    }
    for (const auto& counter : kJobCounters) entry[counter.name] = job.counters.*counter.value;
    for (const auto& counter : kRankCounters) {
      auto& told = entry[counter.name] = nlohmann::ordered_json::array();
      for (const RankCounters& rank : job.counters.ranks)
        tell(counter, rank, [&](auto value) { told.push_back(value); });
    }
    if (job.summary.has_above) entry["above"] = stats.parent;
    for (const Contributor& each : job.summary.contributors) {
      entry["contributors"].push_back(
          {{"first_rank", each.first_rank}, {"ranks", each.ranks}, {"is_switch", each.is_switch()}});
    }
    json["jobs"].push_back(std::move(entry));
  }
  for (const auto& [reason, count] : stats.drops) json["drops"][reason] = count;
  for (const auto& counter : kLinkCounters) json["link"][counter.name] = stats.link.*counter.value;
  json["threads"] = nlohmann::ordered_json::array();
  for (const ThreadUse& thread : stats.threads) {
    nlohmann::ordered_json entry;
    entry["name"] = thread.name;
    entry["cpu_s"] = thread.cpu_s;
    if (thread.link) {
      entry["received_bytes"] = thread.link->received_bytes;
      entry["sent_bytes"] = thread.link->sent_bytes;
    }
    json["threads"].push_back(std::move(entry));
  }
  return json;
}

std::string to_prometheus(const SwitchStats& stats) {
  PrometheusText text;
  const auto gauge = [&](const char* name, const char* help, auto value) {
    text.family(fmt::format("netfold_switch_{}", name), "gauge", help);
    text.sample("", value);
  };
  gauge("draining", "1 while the switch takes no new jobs because its operator is shutting it down",
        int{stats.is_draining});
  gauge("uptime_seconds", "Time since the switch started", stats.uptime_s);
  gauge("connections", "Control connections", stats.connections);
  gauge("jobs", "Jobs that form or run", stats.jobs.size());
  gauge("jobs_limit", "Maximum number of jobs", stats.jobs_max);
  gauge("memory_bytes", "Memory that jobs hold", stats.memory_bytes);
  gauge("memory_limit_bytes", "Memory that jobs may hold", stats.memory_max_bytes);
  for (const auto& counter : kTableCounters) {
    text.family(fmt::format("netfold_switch_{}_total", counter.name), "counter", counter.help);
    text.sample("", stats.table.*counter.value);
  }
  text.family("netfold_switch_dropped_packets_total", "counter", "Data packets dropped, by reason");
  for (const auto& [reason, count] : stats.drops) text.sample(fmt::format("{{reason=\"{}\"}}", reason), count);
  for (const auto& counter : kLinkCounters) {
    text.family(fmt::format("netfold_switch_link_{}_total", counter.name), "counter", counter.help);
    text.sample("", stats.link.*counter.value);
  }
  const auto of_threads = [&](const char* name, const char* help, auto value_of) {
    text.family(fmt::format("netfold_switch_thread_{}_total", name), "counter", help);
    for (const ThreadUse& thread : stats.threads) {
      if (const auto value = value_of(thread)) text.sample(fmt::format("{{thread=\"{}\"}}", thread.name), *value);
    }
  };
  const auto of_link = [](std::uint64_t link::LinkStats::*value) {
    return
        [value](const ThreadUse& thread) { return thread.link ? std::optional((*thread.link).*value) : std::nullopt; };
  };
  of_threads("cpu_seconds", "CPU time of a thread; its rate is the fraction of a core that the thread uses",
             [](const ThreadUse& thread) { return std::optional(thread.cpu_s); });
  of_threads("received_bytes", "Bytes that a thread received", of_link(&link::LinkStats::received_bytes));
  of_threads("sent_bytes", "Bytes that a thread sent", of_link(&link::LinkStats::sent_bytes));
  text.family("netfold_job_workers", "gauge", "Workers that have joined the job");
  for (const JobStats& job : stats.jobs) text.sample(labels_of(job), job.summary.present.size());
  text.family("netfold_job_world", "gauge", "Workers that the job needs to run");
  for (const JobStats& job : stats.jobs) text.sample(labels_of(job), job.summary.world);
  text.family("netfold_job_running", "gauge", "1 if the job is admitted, 0 while it forms");
  for (const JobStats& job : stats.jobs) text.sample(labels_of(job), job.summary.running ? 1 : 0);
  const auto of_shared = [&](const char* name, const char* help, double control::SharedWork::*value) {
    text.family(fmt::format("netfold_job_{}", name), "gauge", help);
    for (const JobStats& job : stats.jobs) {
      if (job.summary.shared) text.sample(labels_of(job), *job.summary.shared.*value);
    }
  };
  of_shared("of_switch", "Share of each large tensor that the switch folds, 0 to 1", &control::SharedWork::of_switch);
  of_shared("switch_bytes_per_second", "Bytes that the switch takes from a worker, as measured by the job",
            &control::SharedWork::switch_bytes_s);
  of_shared("link_bytes_per_second", "Bytes that a worker's link carries, as measured by the job",
            &control::SharedWork::link_bytes_s);
  for (const auto& counter : kJobCounters) {
    text.family(fmt::format("netfold_job_{}_total", counter.name), "counter", counter.help);
    for (const JobStats& job : stats.jobs) {
      if (job.summary.running) text.sample(labels_of(job), job.counters.*counter.value);
    }
  }
  for (const auto& counter : kRankCounters) {
    text.family(fmt::format("netfold_job_{}_total", counter.prometheus_name), "counter", counter.help);
    for (const JobStats& job : stats.jobs) {
      const auto& contributors = job.summary.contributors;
      for (std::size_t place = 0; place < job.counters.ranks.size(); ++place) {
        const std::size_t rank = place < contributors.size() ? contributors[place].first_rank : place;
        const std::string labels = labels_of(job, fmt::format(",rank=\"{}\"", rank));
        tell(counter, job.counters.ranks[place], [&](auto value) { text.sample(labels, value); });
      }
    }
  }
  return text.take();
}

}  // namespace netfold::switching

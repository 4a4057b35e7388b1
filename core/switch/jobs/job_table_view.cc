// JobTable: its state in words and numbers.
#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "switch/jobs/job_table.h"

namespace netfold::switching {

std::uint16_t JobTable::free_job_id() const {
  std::set<std::uint16_t> taken;
  for (const auto& [key, job] : jobs_) {
    if (job.running) taken.insert(job.lease.job);
  }
  std::uint16_t id = 0;
  while (taken.contains(id)) ++id;
  assert(id < rules_.jobs_max);
  return id;
}

double JobTable::retry_s_if_a_job_is_ending() const {
  const bool ending =
      std::any_of(jobs_.begin(), jobs_.end(), [](const auto& entry) { return !entry.second.left.empty(); });
  return ending ? to_seconds(rules_.retry_after()) : 0;
}

std::string JobTable::describe(const Connection& connection) const {
  if (connection.job == 0) return fmt::format("a worker at {}", to_string(connection.ip));
  const Job& job = jobs_.at(connection.job);
  const Member* const member = job.member_of(connection.rank);
  if (member != nullptr && member->is_switch()) return fmt::format("{} of job '{}'", member->name(), job.name);
  return fmt::format("{} of job '{}' at {}", name_of_rank(connection.rank), job.name, to_string(connection.ip));
}

Nanoseconds JobTable::deadline() const {
  Nanoseconds earliest = connections_.empty() || next_tick_ == 0 ? drain_by_ : std::min(drain_by_, next_tick_);
  for (const auto& [id, connection] : connections_) {
    if (connection.job == 0) earliest = std::min(earliest, connection.join_by);
  }
  for (const auto& [key, job] : jobs_) {
    if (job.running) continue;
    job.for_each_member([&](const Member& member) { earliest = std::min(earliest, member.wait_until); });
  }
  return earliest;
}

std::vector<Action> JobTable::take_actions() {
  return std::exchange(actions_, {});
}

bool JobTable::has_running_jobs() const {
  return std::ranges::any_of(jobs_, [](const auto& each) { return each.second.running; });
}

std::map<JobKey, RunningJob> JobTable::running_jobs() const {
  std::map<JobKey, RunningJob> running;
  for (const auto& [key, job] : jobs_) {
    if (!job.running) continue;
    std::set<std::string> interfaces;
    for (const auto& [rank, member] : job.members) {
      const auto connection = connections_.find(member.connection);
      if (connection != connections_.end()) interfaces.insert(connection->second.interface);
    }
    running[key] = {.number = job.lease.job,
                    .interface = interfaces.size() == 1 ? *interfaces.begin() : "",
                    .header_bytes = job.any().endpoint.ip.header_bytes() + wire::kUdpBytes};
  }
  return running;
}

std::vector<JobSummary> JobTable::jobs() const {
  std::vector<JobSummary> summaries;
  for (const auto& [key, job] : jobs_) {
    JobSummary summary;
    summary.name = job.name;
    summary.running = job.running;
    summary.job_id = job.lease.job;
    summary.epoch = job.lease.epoch;
    summary.world = job.world;
    summary.present = job.present();
    summary.left.assign(job.left.begin(), job.left.end());
    summary.has_host = job.host.has_value();
    summary.slots = job.lease.slots;
    summary.payload_bytes = job.lease.payload_bytes;
    summary.memory_bytes = job.memory_bytes;
    summary.since = job.since;
    summary.shared = job.shared;
    summary.has_above = job.has_above;
    if (job.running && job.lease.is_tree) {
      for (const auto& [rank, member] : job.members) summary.contributors.push_back(member.contributor());
    }
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

std::size_t JobTable::memory_bytes() const {
  std::size_t total = 0;
  for (const auto& [key, job] : jobs_) total += job.memory_bytes;
  return total;
}

bool JobTable::has_joined(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found != connections_.end() && found->second.job != 0;
}

}  // namespace netfold::switching

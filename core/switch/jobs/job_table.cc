#include "switch/jobs/job_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace netfold::switching {
namespace {

std::vector<std::uint16_t> missing_ranks(std::uint16_t world, const std::vector<std::uint16_t>& present,
                                         const std::vector<std::uint16_t>& elsewhere) {
  std::vector<std::uint16_t> missing;
  for (std::uint16_t rank = 0; rank < world; ++rank) {
    if (std::ranges::count(present, rank) + std::ranges::count(elsewhere, rank) == 0) missing.push_back(rank);
  }
  return missing;
}

std::string name_ranks(const std::vector<std::uint16_t>& ranks) {
  constexpr std::size_t kNamed = 16;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() <= kNamed) return fmt::format("ranks {}", fmt::join(ranks, ", "));
  return fmt::format("ranks {} and {} more", fmt::join(ranks.begin(), ranks.begin() + kNamed, ", "),
                     ranks.size() - kNamed);
}

constexpr const char* kDraining =
    "the switch takes no new jobs, because its operator is shutting it down: use another switch, or wait until it is "
    "started again";

}  // namespace

JobTable::JobTable(SwitchRules rules) : rules_(std::move(rules)), next_epoch_(rules_.first_epoch) {
  assert(rules_.memory_bytes && rules_.random && rules_.heartbeat > 0 && !rules_.udp_ports.empty());
  assert(!rules_.tagged || rules_.secret);
}

// ---- Events
// ----------------------------------------------------------------------------------------------------------

void JobTable::on_open(ConnectionId id, const IpAddress& ip, Nanoseconds now, const std::optional<IpAddress>& source_ip,
                       const std::string& interface) {
  Connection& connection = connections_[id];
  connection.ip = ip;
  connection.source_ip = source_ip;
  connection.interface = interface;
  connection.join_by = now + rules_.join_within;
  rules_.random(connection.nonce);
  send(id, control::Hello{control::kControlVersion, connection.nonce, rules_.secret.has_value(), rules_.tagged,
                          to_seconds(rules_.heartbeat), rules_.path_port});
  if (next_tick_ == 0) next_tick_ = now + rules_.heartbeat;
}

bool JobTable::has_greeted(const control::Nonce& nonce, const IpAddress& ip) const {
  return std::ranges::any_of(connections_,
                             [&](const auto& each) { return each.second.nonce == nonce && each.second.ip == ip; });
}

void JobTable::on_line(ConnectionId id, std::string_view line, Nanoseconds now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // closed by us; its last lines do not matter
  found->second.missed = 0;
  // A stranger must not keep this thread from the workers: one short line, no more.
  if (found->second.job == 0 && !found->second.pending && line.size() > control::kJoinBytesMax) {
    return on_violation(id, fmt::format("a 'join' has at most {} bytes", control::kJoinBytesMax));
  }
  const auto message = control::parse(line);
  if (!message) return on_violation(id, message.error().message);
  if (const auto* join = std::get_if<control::Join>(&*message)) return handle_join(id, *join, now);
  if (const auto* leave = std::get_if<control::Leave>(&*message)) return handle_leave(id, *leave);
  const bool is_member = found->second.job != 0;
  if (const auto* ranks = std::get_if<control::Ranks>(&*message); ranks && (is_member || found->second.pending)) {
    return handle_ranks(id, *ranks, now);
  }
  if (const auto* left = std::get_if<control::Left>(&*message); left && is_member) return handle_left(id, left->rank);
  if (const auto* heartbeat = std::get_if<control::Heartbeat>(&*message); heartbeat && found->second.job != 0) {
    const auto job = jobs_.find(found->second.job);
    if (!heartbeat->shared || found->second.rank != 0 || job == jobs_.end()) return;
    job->second.shared = heartbeat->shared;
    if (job->second.has_above) actions_.emplace_back(TellAbove{job->first, *heartbeat->shared});
    return;
  }
  on_violation(id, fmt::format("a worker does not send '{}'", control::type_of(*message)));
}

void JobTable::on_violation(ConnectionId id, const std::string& what) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection connection = found->second;
  if (connection.job != 0) {
    send(id, control::Failed{what, ErrorCode::kInvalidArgument, connection.rank_to_tell()});
    close(id);
    return lose_member(connection, fmt::format("sent bytes that are not a control message ({})", what),
                       connection.rank);
  }
  refuse(id, control::Refused{what, ErrorCode::kInvalidArgument, kNoRank, 0});
}

void JobTable::on_close(ConnectionId id, const std::string& why) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection connection = found->second;
  connections_.erase(found);
  if (connection.job != 0) lose_member(connection, why, connection.rank);
}

void JobTable::on_mismatch(std::uint16_t job_id, std::uint16_t epoch, int rank, const std::string& what) {
  fail_running(job_id, epoch, [&](const Job& job) {
    return Error{ErrorCode::kMismatch, fmt::format("the workers of job '{}' disagree: {}", job.name, what), rank};
  });
}

void JobTable::on_no_memory(std::uint16_t job_id, std::uint16_t epoch) {
  fail_running(job_id, epoch, [](const Job& job) {
    return Error{ErrorCode::kRefused,
                 fmt::format("the switch's machine has no memory left for job '{}', which needs {} bytes: give the "
                             "switch less memory for jobs, or the machine more",
                             job.name, job.memory_bytes),
                 kNoRank};
  });
}

void JobTable::fail_running(std::uint16_t job_id, std::uint16_t epoch, const std::function<Error(const Job&)>& why) {
  for (const auto& [key, job] : jobs_) {
    if (job.running && job.lease.job == job_id && job.lease.epoch == epoch) return fail_job(key, why(job));
  }
}

void JobTable::on_time(Nanoseconds now) {
  if (now >= drain_by_) {
    is_drain_over_ = true;
    drain_by_ = kNever;
  }
  std::vector<ConnectionId> late;
  for (const auto& [id, connection] : connections_) {
    if (connection.job == 0 && now >= connection.join_by) late.push_back(id);
  }
  for (const ConnectionId id : late) {
    refuse(id, control::Refused{fmt::format("no 'join' came within {:g} s", to_seconds(rules_.join_within)),
                                ErrorCode::kTimeout, kNoRank, 0});
  }
  std::vector<JobKey> overdue;
  for (const auto& [key, job] : jobs_) {
    if (job.running) continue;
    bool is_overdue = false;
    job.for_each_member([&](const Member& member) { is_overdue |= now >= member.wait_until; });
    if (is_overdue) overdue.push_back(key);
  }
  for (const JobKey key : overdue) dissolve(key, now);
  if (next_tick_ != 0 && now >= next_tick_) {
    next_tick_ = now + rules_.heartbeat;
    tick();
  }
}

void JobTable::on_link_share(JobKey key, const control::LinkShare& share) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || !found->second.running) return;
  const control::Heartbeat heartbeat{
      .link_share = control::LinkShare{std::clamp(share.of_fair, 1.0, control::kOfFairShareMax),
                                       std::clamp(share.grant_bytes_s, 0.0, control::kBytesPerSecondMax)}};
  for (const auto& [rank, member] : found->second.members) send(member.connection, heartbeat);
}

void JobTable::on_late_rank(JobKey key, std::uint16_t place) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || !found->second.left.empty() || place >= found->second.members.size()) return;
  const Member& member = std::next(found->second.members.begin(), place)->second;
  if (!member.is_switch()) send(member.connection, control::Heartbeat{.is_late = true});
}

void JobTable::on_drain(Nanoseconds by) {
  is_draining_ = true;
  drain_by_ = by;
  end_forming(kDraining);
}

void JobTable::on_new_secret(std::optional<control::Secret> secret) {
  assert(!rules_.tagged || secret);
  rules_.secret = std::move(secret);
  end_forming("the switch has a new secret: give it to all workers");
}

void JobTable::end_forming(const std::string& why) {
  std::vector<JobKey> forming;
  for (const auto& [key, job] : jobs_) {
    if (!job.running) forming.push_back(key);
  }
  for (const JobKey key : forming) {
    fail_job(key,
             Error{ErrorCode::kRefused, fmt::format("job '{}' did not start: {}", jobs_.at(key).name, why), kNoRank});
  }
}

void JobTable::on_stop(const std::string& why) {
  while (!jobs_.empty()) {
    const JobKey key = jobs_.begin()->first;
    fail_job(key, Error{ErrorCode::kSwitchFailed,
                        fmt::format("{} while job '{}' was there: start it again, then the job", why,
                                    jobs_.begin()->second.name),
                        kNoRank});
  }
  while (!connections_.empty()) {
    refuse(connections_.begin()->first, control::Refused{why, ErrorCode::kSwitchFailed, kNoRank, 0});
  }
}

// ---- Joining
// ---------------------------------------------------------------------------------------------------------

void JobTable::handle_join(ConnectionId id, const control::Join& join, Nanoseconds now) {
  Connection& connection = connections_.at(id);
  if (connection.job != 0 || connection.pending) return on_violation(id, "a second 'join' on one connection");
  if (!control::is_spoken(join.version)) {
    return refuse(
        id, control::Refused{fmt::format("the worker speaks version {} of the control protocol, the switch version {}: "
                                         "install the same Netfold on both",
                                         join.version, control::kControlVersion),
                             ErrorCode::kRefused, kNoRank, 0});
  }
  if (auto refusal = check_secret(rules_, connection.nonce, join)) return refuse(id, *refusal);
  if (auto refusal = check_below(rules_, join)) return refuse(id, *refusal);
  if (join.below) {
    connection.pending = join;  // it says next which ranks are below it
    return;
  }
  take_in(id, join, std::nullopt, now);
}

// `said`: of a switch.
void JobTable::take_in(ConnectionId id, const control::Join& join, const std::optional<control::Ranks>& said,
                       Nanoseconds now) {
  Connection& connection = connections_.at(id);
  const std::vector<std::uint16_t> ranks = said ? said->ranks : std::vector{join.rank};
  JobKey place = 0;
  if (auto refusal = find_place(join, ranks, now, place)) return refuse(id, *refusal);

  Job& job = jobs_.at(place);
  Member member{id, Endpoint{connection.ip, join.udp_port}, join, now + from_seconds(join.timeout_s), ranks, said};
  if (join.is_host()) {
    job.host = std::move(member);
  } else {
    job.members[join.rank] = std::move(member);
  }
  job.presence_changed = true;
  connection.job = place;
  connection.rank = join.rank;
  log(LogLevel::kInfo,
      fmt::format("{} joined, {} of {} are here", describe(connection), job.present().size(), job.world), job.name);
  settle_forming(place, id, now);
}

// Finds the forming job to join, or begins one; `place` is set unless it is refused.
std::optional<control::Refused> JobTable::find_place(const control::Join& join, const std::vector<std::uint16_t>& ranks,
                                                     Nanoseconds now, JobKey& place) {
  if (auto refusal = check_running_jobs(join)) return refusal;
  for (const auto& [key, job] : jobs_) {
    if (job.running || job.name != join.job) continue;
    if (auto refusal = check_agreement(job.any().join, join)) return refusal;
    if (join.is_host() && job.host) {
      return control::Refused{
          fmt::format("job '{}' has a host already, at {}: a job has one", join.job, to_string(job.host->endpoint.ip)),
          ErrorCode::kRefused, kNoRank, to_seconds(rules_.retry_after())};
    }
    if (auto refusal = check_ranks(job, ranks, nullptr)) return refusal;
    place = key;
    return std::nullopt;
  }
  return begin_job(join, now, place);
}

std::optional<control::Refused> JobTable::check_running_jobs(const control::Join& join) const {
  for (const auto& [key, job] : jobs_) {
    if (!job.running || job.name != join.job) continue;
    if (!job.left.empty() && job.member_of(join.rank) == nullptr) continue;  // it ends, and this worker has left it
    if (join.is_host()) {
      return control::Refused{
          fmt::format("job '{}' is running already: its host joins before the last of its workers does", join.job),
          ErrorCode::kRefused, kNoRank, to_seconds(rules_.retry_after())};
    }
    // A worker that died unseen is noticed within that time; until then the same job, started again, comes here.
    return control::Refused{
        fmt::format("job '{}' is running already, with rank {} in it: name this job differently, or wait "
                    "until that one has ended",
                    join.job, job.member_of(join.rank) != nullptr ? join.rank : job.members.begin()->first),
        ErrorCode::kRefused, kNoRank, to_seconds(rules_.retry_after())};
  }
  return std::nullopt;
}

std::optional<control::Refused> JobTable::begin_job(const control::Join& join, Nanoseconds now, JobKey& place) {
  if (is_draining_) {
    return control::Refused{fmt::format("job '{}' cannot start: {}", join.job, kDraining), ErrorCode::kRefused, kNoRank,
                            0};
  }
  if (jobs_.size() >= rules_.jobs_max) {
    return refuse_for_jobs(rules_, jobs_.size(), retry_s_if_a_job_is_ending());
  }
  const std::size_t used_bytes = memory_bytes();
  const std::size_t free_bytes = rules_.memory_max_bytes - std::min(used_bytes, rules_.memory_max_bytes);
  const control::Join* const joins[] = {&join};
  const Grant grant =
      plan_grant(rules_, joins, free_bytes, {.contributors = rules_.parent.empty() ? join.world : std::uint16_t{1}});
  if (grant.memory_bytes > free_bytes) {
    return refuse_for_memory(rules_, join, grant, used_bytes, retry_s_if_a_job_is_ending());
  }
  place = next_key_++;
  Job& job = jobs_[place];
  job.name = join.job;
  job.world = join.world;
  job.lease = grant.lease;
  job.memory_bytes = grant.memory_bytes;  // reserved, so that a job that has begun to form finds its place
  job.since = now;
  return std::nullopt;
}

bool JobTable::Job::is_whole() const {
  const auto wants_host = [](const auto& member) { return member.second.join.is_hosted; };
  return present().size() == world && (host || std::none_of(members.begin(), members.end(), wants_host));
}

void JobTable::admit(JobKey key, Nanoseconds now) {
  const Job& job = jobs_.at(key);
  if (const auto error = check_order(job)) return fail_job(key, *error);
  // The free memory, with the memory that is reserved for this job. The plan stays within it, unless the worker that
  // began the job went while it formed and others with a larger MTU came.
  const std::size_t others_bytes = memory_bytes() - job.memory_bytes;
  const auto joins = joins_of(job);
  Grant grant = plan_grant(rules_, joins, rules_.memory_max_bytes - others_bytes,
                           bounds_of(job, static_cast<std::uint16_t>(job.members.size())));
  if (grant.memory_bytes > rules_.memory_max_bytes - others_bytes) {
    const control::Refused refused = refuse_for_memory(rules_, *joins.front(), grant, others_bytes, 0);
    return fail_job(key, Error{refused.code, refused.reason, refused.rank});
  }
  const std::string name = job.name;
  run(key, grant.lease, std::nullopt, now);
  if (grant.lease.slots >= grant.slots_wished) return;
  log(LogLevel::kWarning,
      fmt::format("job '{}' got {} of the {} slots it wished for: the switch's memory for "
                  "jobs is short, so it has fewer packets on the way",
                  name, grant.lease.slots, grant.slots_wished),
      name);
}

// `lease` lacks what is drawn for each admission; in a tree the switch above has drawn the first chunk.
void JobTable::run(JobKey key, wire::Lease lease, std::optional<Above> above, Nanoseconds now) {
  Job& job = jobs_.at(key);
  AdmitJob action;
  for (const auto& [rank, member] : job.members) {
    action.workers.push_back(member.endpoint);
    if (lease.is_tree) action.tree.contributors.push_back(member.contributor());
  }
  if (job.host) action.host = job.host->endpoint;
  job.memory_bytes = rules_.memory_bytes(lease);
  job.lease = std::move(lease);
  job.lease.job = free_job_id();
  job.lease.epoch = next_epoch_++;
  job.running = true;
  job.since = now;

  control::Admitted admitted;
  admitted.job_id = job.lease.job;
  admitted.epoch = job.lease.epoch;
  admitted.slots = job.lease.slots;
  admitted.payload_bytes = job.lease.payload_bytes;
  admitted.udp_ports = rules_.udp_ports;
  admitted.tagged = rules_.tagged;
  rules_.random(admitted.salt);
  if (above) admitted.set_first_chunk(above->lease.first_chunk);
  admitted.in_tree = job.lease.is_tree;
  if (above) admitted.above = rules_.parent;
  job.lease.first_chunk = admitted.first_chunk();
  if (rules_.tagged) {
    job.lease.keys.emplace(rules_.secret->tag_key(admitted.salt, job.lease.job, job.lease.epoch),
                           job.lease.first_chunk);
  }
  action.lease = job.lease;
  action.tree.above = std::move(above);
  actions_.emplace_back(std::move(action));  // before any worker hears of it: its first packet must find the job
  job.for_each_member([&](const Member& member) {
    admitted.data_ip.reset();
    if (!rules_.folds_on_the_way) {
      admitted.data_ip = connections_.at(member.connection).source_ip;
    } else if (job.host && !member.join.is_host()) {
      admitted.data_ip = job.host->endpoint.ip;
    }
    if (rules_.secret) admitted.proof = rules_.secret->admit_proof(member.join.nonce, admitted);
    send(member.connection, admitted);
  });
  ++counters_.jobs_admitted;
  log(LogLevel::kInfo,
      fmt::format("job '{}' admitted as {} in epoch {}: {} workers, {} slots of {} bytes", job.name, job.lease.job,
                  job.lease.epoch, job.world, job.lease.slots, job.lease.payload_bytes),
      job.name);
}

// ---- Leaving
// ---------------------------------------------------------------------------------------------------------

void JobTable::handle_leave(ConnectionId id, const control::Leave& leave) {
  const Connection connection = connections_.at(id);
  close(id);
  if (connection.job == 0) return;
  const Job& job = jobs_.at(connection.job);
  if (leave.failed) {
    const int blamed = leave.rank >= 0 && leave.rank < job.world ? leave.rank : connection.rank;
    const Member* const member = job.member_of(connection.rank);
    if (job.running && member != nullptr && member->is_switch()) return lose_below(connection, leave);
    return lose_member(connection, fmt::format("gave up: {}", leave.reason), blamed);
  }
  log(LogLevel::kInfo, fmt::format("{} left", describe(connection)), job.name);
  leave_cleanly(connection.job, connection.rank);
}

void JobTable::leave_cleanly(JobKey key, std::uint16_t rank) {
  Job& job = jobs_.at(key);
  job.presence_changed = true;
  if (rank == control::kHostRank) {
    job.host.reset();
  } else {
    const Member gone = std::move(job.members.at(rank));
    job.members.erase(rank);
    if (job.running) {
      for (const std::uint16_t each : gone.ranks) say_left(key, each, nullptr);
    }
  }
  if (!job.members.empty()) {
    if (!job.running && job.has_above) tell_above(key);
    return;
  }
  if (job.has_above) leave_above(key, std::nullopt);
  if (job.running) return end_without_workers(key);
  if (!job.host) jobs_.erase(key);
}

void JobTable::end_without_workers(JobKey key) {
  const Job job = std::move(jobs_.at(key));
  jobs_.erase(key);
  actions_.emplace_back(EvictJob{job.lease.job});
  ++counters_.jobs_finished;
  const std::string over = fmt::format("job '{}' is over: all of its workers left", job.name);
  log(LogLevel::kInfo, over, job.name);
  if (!job.host) return;
  send(job.host->connection, control::Failed{over, ErrorCode::kPeerFailed, kNoRank});
  close(job.host->connection);
}

// A member is gone without a clean leave. A forming job waits for the rank to come again; a running one has failed.
void JobTable::lose_member(const Connection& connection, const std::string& why, int blamed) {
  Job& job = jobs_.at(connection.job);
  log(LogLevel::kWarning, fmt::format("{} {}", describe(connection), why), job.name);
  if (!job.running || connection.rank == control::kHostRank) return leave_cleanly(connection.job, connection.rank);
  const Member lost = std::move(job.members.at(connection.rank));
  job.members.erase(connection.rank);
  if (lost.is_switch()) {
    return fail_job(connection.job, Error{ErrorCode::kSwitchFailed,
                                          fmt::format("{} of job '{}' {}", lost.name(), job.name, why), kNoRank});
  }
  fail_job(connection.job, Error{ErrorCode::kPeerFailed,
                                 fmt::format("rank {} of job '{}' {}", connection.rank, job.name, why), blamed});
}

// Tells every worker that is left, and forgets the job.
void JobTable::fail_job(JobKey key, const Error& error) {
  if (jobs_.at(key).has_above) leave_above(key, error);
  const Job job = std::move(jobs_.at(key));
  jobs_.erase(key);
  job.for_each_member([&](const Member& member) {
    send(member.connection, control::Failed{error.message, error.code, error.rank});
    close(member.connection);
  });
  if (!job.running) return;
  actions_.emplace_back(EvictJob{job.lease.job});
  ++counters_.jobs_failed;
  log(LogLevel::kWarning, fmt::format("job '{}' failed: {}", job.name, error.message), job.name);
}

// The first worker's patience is over, so the job cannot complete: all are told who is missing.
void JobTable::dissolve(JobKey key, Nanoseconds now) {
  const Job& job = jobs_.at(key);
  const auto missing = missing_ranks(job.world, job.present(), job.present_above);
  const Member* impatient = nullptr;
  job.for_each_member([&](const Member& member) {
    if (impatient == nullptr && now >= member.wait_until) impatient = &member;
  });
  if (job.has_above && job.present_above.empty()) {
    const std::string text = fmt::format(
        "the switch above, at {}, did not take in job '{}' within the {:g} s that {} waits: see whether it "
        "runs and whether the network to it works",
        rules_.parent, job.name, impatient->join.timeout_s, name_of_rank(impatient->join.rank));
    log(LogLevel::kWarning, text, job.name);
    return fail_job(key, Error{ErrorCode::kSwitchFailed, text, kNoRank});
  }
  const std::string text = fmt::format(
      "{} of job '{}' did not join within the {:g} s that {} waits: see whether all {} workers were "
      "started with {}",
      missing.empty() ? "the host" : name_ranks(missing), job.name, impatient->join.timeout_s,
      name_of_rank(impatient->join.rank), job.world,
      job.has_above || job.has_switches() ? "the address of a switch of this tree" : "this switch's address");
  log(LogLevel::kWarning, text, job.name);
  fail_job(key, Error{ErrorCode::kTimeout, text, missing.empty() ? kNoRank : missing.front()});
}

// Once a heartbeat interval. A worker is dead after some intervals without a line; counting our own ticks, not time,
// keeps a switch that was itself stopped for a while from blaming its workers.
void JobTable::tick() {
  std::vector<ConnectionId> silent;
  for (auto& [id, connection] : connections_) {
    if (connection.job == 0) continue;
    if (++connection.missed > rules_.heartbeats_missed_max) {
      silent.push_back(id);
    } else {
      send(id, control::Heartbeat{});
    }
  }
  for (const ConnectionId id : silent) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;  // closed with its job, when another was found silent
    const Connection connection = found->second;
    const std::string why =
        fmt::format("has been silent for {:g} s: see whether its process lives and its network works",
                    to_seconds(rules_.silence_max()));
    send(id, control::Failed{fmt::format("this {}, {}, {}", connection.rank == control::kHostRank ? "host" : "worker",
                                         describe(connection), why),
                             ErrorCode::kPeerFailed, connection.rank_to_tell()});
    close(id);
    lose_member(connection, why, connection.rank);
  }
  for (auto& [key, job] : jobs_) {
    if (job.running || !job.presence_changed) continue;
    job.presence_changed = false;
    job.for_each_member([&](const Member& member) { send_presence(job, member.connection); });
  }
}

// ---- Small things
// ----------------------------------------------------------------------------------------------------

void JobTable::refuse(ConnectionId id, const control::Refused& refused) {
  ++counters_.joins_refused;
  log(LogLevel::kWarning, fmt::format("{} refused: {}", describe(connections_.at(id)), refused.reason), "",
      LogSubject::kStranger);
  send(id, refused);
  close(id);
}

void JobTable::send(ConnectionId id, const control::Message& message) {
  actions_.emplace_back(SendLine{id, emit(message)});
}

void JobTable::close(ConnectionId id) {
  connections_.erase(id);
  actions_.emplace_back(CloseConnection{id});
}

void JobTable::log(LogLevel level, std::string text, const std::string& job, LogSubject subject) {
  actions_.emplace_back(LogLine{level, std::move(text), subject, job});
}

void JobTable::send_presence(const Job& job, ConnectionId only) {
  control::Waiting waiting;
  waiting.present = job.present();
  for (const std::uint16_t rank : job.present_above) {
    if (!std::ranges::count(waiting.present, rank)) waiting.present.push_back(rank);
  }
  send(only, waiting);
}

}  // namespace netfold::switching

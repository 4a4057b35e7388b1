// JobTable: jobs in a tree of switches, and the words between a switch and the one above it.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "switch/jobs/job_table.h"

namespace netfold::switching {
namespace {

bool is_in_a_row(const std::vector<std::uint16_t>& ranks) {
  return std::size_t{ranks.back()} - ranks.front() + 1 == ranks.size();
}

}  // namespace

// ---- A job's members
// -------------------------------------------------------------------------------------------------

Contributor JobTable::Member::contributor() const {
  return {ranks.front(), static_cast<std::uint16_t>(ranks.size()),
          join.below ? join.below->udp_ports : std::vector<std::uint16_t>{}};
}

std::string JobTable::Member::name() const {
  return fmt::format("the switch at {} with {}{}", link::to_string({endpoint.ip, join.below->port}),
                     is_in_a_row(ranks) ? "" : "some of ",
                     name_of(Contributor{ranks.front(), static_cast<std::uint16_t>(ranks.back() - ranks.front() + 1)}));
}

std::vector<std::uint16_t> JobTable::Job::present() const {
  std::vector<std::uint16_t> here;
  for (const auto& [rank, member] : members) {
    std::ranges::copy_if(member.ranks, std::back_inserter(here), [&](auto each) { return !left.contains(each); });
  }
  std::ranges::sort(here);
  return here;
}

const JobTable::Member* JobTable::Job::member_of(std::uint16_t rank) const {
  const auto found = std::ranges::find_if(members, [&](const auto& entry) { return entry.second.has(rank); });
  return found == members.end() ? nullptr : &found->second;
}

bool JobTable::Job::has_switches() const {
  return std::ranges::any_of(members, [](const auto& entry) { return entry.second.is_switch(); });
}

std::vector<const control::Join*> JobTable::joins_of(const Job& job) const {
  std::vector<const control::Join*> joins;
  for (const auto& [rank, member] : job.members) joins.push_back(&member.join);
  return joins;
}

// The switches below may take less than this one.
GrantBounds JobTable::bounds_of(const Job& job, std::uint16_t contributors) const {
  GrantBounds bounds{.contributors = contributors};
  for (const auto& [rank, member] : job.members) {
    if (!member.said) continue;
    bounds.slots_max = std::min(bounds.slots_max, member.said->slots);
    bounds.payload_max = std::min(bounds.payload_max, member.said->payload_bytes);
  }
  return bounds;
}

// A sum goes up as one packet, and ranks are folded in their order: the ranks below a switch must be in a row.
std::optional<Error> JobTable::check_order(const Job& job) const {
  for (const auto& [rank, member] : job.members) {
    if (is_in_a_row(member.ranks)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} of job '{}' has ranks that are not in a row: number the ranks switch by switch",
                             member.name(), job.name),
                 member.ranks.front()};
  }
  const numbers::BfpShape bfp = job.members.begin()->second.join.bfp;
  const std::size_t payload_bytes = plan_grant(rules_, joins_of(job), 0, bounds_of(job, 1)).lease.payload_bytes;
  if (!job.has_switches() || payload_bytes >= bfp.block * wire::kSumBytes) return std::nullopt;
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("packets of {} bytes hold no sum of a bfp block of {} elements, as a tree of switches needs: "
                  "use smaller blocks, or links with a larger MTU",
                  payload_bytes, bfp.block),
      kNoRank};
}

// ---- From switches below
// ---------------------------------------------------------------------------------------------

// Nothing if none of these ranks is here already, from another than `of`.
std::optional<control::Refused> JobTable::check_ranks(const Job& job, const std::vector<std::uint16_t>& ranks,
                                                      const Member* of) const {
  for (const std::uint16_t rank : ranks) {
    const Member* const taken = job.member_of(rank);
    if (taken == nullptr || taken == of) continue;
    return control::Refused{
        fmt::format("rank {} of job '{}' has joined already, from {}: give every worker a rank of its own", rank,
                    job.name, to_string(taken->endpoint.ip)),
        ErrorCode::kRefused, rank, to_seconds(rules_.retry_after())};
  }
  return std::nullopt;
}

void JobTable::handle_ranks(ConnectionId id, const control::Ranks& ranks, Nanoseconds now) {
  if (auto pending = std::exchange(connections_.at(id).pending, std::nullopt)) {
    if (ranks.ranks.back() >= pending->world) return on_violation(id, "'ranks' names a rank beyond the job's world");
    if (const auto refusal = check_cycle(rules_, ranks.through)) return refuse(id, *refusal);
    pending->rank = ranks.ranks.front();
    pending->window = ranks.window;
    return take_in(id, *pending, ranks, now);
  }
  const Connection connection = connections_.at(id);
  Job& job = jobs_.at(connection.job);
  const auto found = job.members.find(connection.rank);
  if (found == job.members.end() || !found->second.is_switch()) return on_violation(id, "a worker sent 'ranks'");
  Member& member = found->second;
  if (ranks.ranks.back() >= job.world) return on_violation(id, "'ranks' names a rank beyond the job's world");
  if (job.running) {
    if (ranks.ranks == member.ranks) return;
    return on_violation(id, "its ranks changed while the job started");
  }
  auto refusal = check_cycle(rules_, ranks.through);
  if (!refusal) refusal = check_ranks(job, ranks.ranks, &member);
  if (refusal) return turn_away(id, *refusal);
  member.ranks = ranks.ranks;
  member.said = ranks;
  member.join.window = ranks.window;
  change_rank(id, ranks.ranks.front());
  job.presence_changed = true;
  settle_forming(connection.job, id, now);
}

void JobTable::change_rank(ConnectionId id, std::uint16_t rank) {
  Connection& connection = connections_.at(id);
  auto& members = jobs_.at(connection.job).members;
  auto node = members.extract(connection.rank);
  node.key() = rank;
  members.insert(std::move(node));
  connection.rank = rank;
}

void JobTable::handle_left(ConnectionId id, std::uint16_t rank) {
  const Connection connection = connections_.at(id);
  Job& job = jobs_.at(connection.job);
  const Member* const member = job.member_of(connection.rank);
  if (!job.running || member == nullptr || !member->is_switch() || !member->has(rank)) {
    return on_violation(id, "'left' of a rank that is not below it");
  }
  say_left(connection.job, rank, member);
}

void JobTable::say_left(JobKey key, std::uint16_t rank, const Member* by) {
  Job& job = jobs_.at(key);
  if (!job.left.insert(rank).second) return;
  job.for_each_member([&](const Member& member) {
    if (&member != by) send(member.connection, control::Left{rank});
  });
  if (job.has_above) actions_.emplace_back(TellAbove{key, control::Left{rank}});
}

// It gave up the job, and says why: a rank below it, or itself.
void JobTable::lose_below(const Connection& connection, const control::Leave& leave) {
  Job& job = jobs_.at(connection.job);
  const Member lost = std::move(job.members.at(connection.rank));
  job.members.erase(connection.rank);
  const bool is_switch = leave.code == ErrorCode::kSwitchFailed;
  const std::string why = is_switch ? fmt::format("{} says: {}", lost.name(), leave.reason) : leave.reason;
  fail_job(connection.job, Error{leave.code, why, leave.rank});
}

// ---- To the switch above, and from it
// --------------------------------------------------------------------------------

// A member has come, or a switch below has other ranks.
void JobTable::settle_forming(JobKey place, ConnectionId joined, Nanoseconds now) {
  Job& job = jobs_.at(place);
  if (!rules_.parent.empty() || job.has_switches()) {
    if (const auto refusal = plan_again(job)) return turn_away(joined, *refusal);
  }
  // Workers that are all here need no switch above. Switches below do, or a cycle of them would not be found.
  if (job.is_whole() && (rules_.parent.empty() || !job.has_switches())) {
    if (job.has_above) leave_above(place, std::nullopt);
    return admit(place, now);
  }
  send_presence(job, joined);
  if (rules_.parent.empty()) return;
  if (job.has_above) return tell_above(place);
  join_above(place, now);
}

// A member of a job that forms: its ranks may come again.
void JobTable::turn_away(ConnectionId id, const control::Refused& refusal) {
  Connection& connection = connections_.at(id);
  const JobKey key = std::exchange(connection.job, 0);
  leave_cleanly(key, connection.rank);
  refuse(id, refusal);
}

// How many contribute is known only when all are there; until then every rank that is missing may come here.
std::optional<control::Refused> JobTable::plan_again(Job& job) {
  const std::size_t others_bytes = memory_bytes() - job.memory_bytes;
  const std::size_t missing = rules_.parent.empty() ? job.world - job.present().size() : 0;
  const auto joins = joins_of(job);
  const Grant grant = plan_grant(rules_, joins, rules_.memory_max_bytes - others_bytes,
                                 bounds_of(job, static_cast<std::uint16_t>(job.members.size() + missing)));
  if (grant.memory_bytes > rules_.memory_max_bytes - others_bytes) {
    return refuse_for_memory(rules_, *joins.front(), grant, others_bytes, retry_s_if_a_job_is_ending());
  }
  job.lease = grant.lease;
  job.memory_bytes = grant.memory_bytes;
  return std::nullopt;
}

control::Ranks JobTable::ranks_of(const Job& job) const {
  control::Ranks ranks{job.present(), 0, job.lease.slots, job.lease.payload_bytes, {rules_.id}};
  for (const auto& [rank, member] : job.members) {
    ranks.window = std::max(ranks.window, member.join.window);
    if (member.said) std::ranges::copy(member.said->through, std::back_inserter(ranks.through));
  }
  return ranks;
}

void JobTable::join_above(JobKey key, Nanoseconds now) {
  Job& job = jobs_.at(key);
  job.has_above = true;
  const Member& first = job.any();
  JoinAbove action{key, {}, ranks_of(job)};
  action.join.job = job.name;
  action.join.world = job.world;
  action.join.rank = action.ranks.ranks.front();
  action.join.bfp = first.join.bfp;
  action.join.window = action.ranks.window;
  action.join.timeout_s = to_seconds(first.wait_until - now);
  action.join.token = first.join.token;
  action.join.below = control::Below{rules_.udp_ports, rules_.port, rules_.id};
  actions_.emplace_back(std::move(action));
}

void JobTable::tell_above(JobKey key) {
  actions_.emplace_back(TellAbove{key, ranks_of(jobs_.at(key))});
}

void JobTable::leave_above(JobKey key, const std::optional<Error>& error) {
  jobs_.at(key).has_above = false;
  actions_.emplace_back(LeaveAbove{key, error});
}

void JobTable::on_present_above(JobKey key, const std::vector<std::uint16_t>& ranks) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.running || found->second.present_above == ranks) return;
  found->second.present_above = ranks;
  found->second.presence_changed = true;
}

// The slots and the payload are the same at all switches, and so are the numbers of chunks.
void JobTable::on_admitted_above(JobKey key, const wire::Lease& above, std::vector<link::Address> shards,
                                 Nanoseconds now) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.running) return;
  const Job& job = found->second;
  if (const auto error = check_order(job)) return fail_job(key, *error);
  wire::Lease lease;
  lease.world = static_cast<std::uint16_t>(job.members.size());
  lease.slots = above.slots;
  lease.shards = rules_.shards();
  lease.payload_bytes = above.payload_bytes;
  lease.bfp = job.any().join.bfp;
  lease.is_tree = true;
  const GrantBounds bounds = bounds_of(job, lease.world);
  const std::size_t free_bytes = rules_.memory_max_bytes - (memory_bytes() - job.memory_bytes);
  const bool fits = above.is_tree && lease.slots >= lease.shards && lease.slots <= bounds.slots_max &&
                    lease.payload_bytes <= bounds.payload_max && rules_.memory_bytes(lease) <= free_bytes;
  if (!fits) {
    return fail_job(key,
                    Error{ErrorCode::kRefused,
                          fmt::format("the switch above, at {}, grants job '{}' {} slots of {} bytes, which do not "
                                      "fit here: install the same Netfold on both, or give this switch more "
                                      "memory for jobs",
                                      rules_.parent, job.name, lease.slots, lease.payload_bytes),
                          kNoRank});
  }
  const std::uint16_t rank = job.present().front();
  run(key, lease, Above{above, rank, std::move(shards)}, now);
}

void JobTable::on_left_above(JobKey key, std::uint16_t rank) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || !found->second.running) return;
  found->second.for_each_member([&](const Member& member) { send(member.connection, control::Left{rank}); });
}

void JobTable::on_lost_above(JobKey key, const Error& error) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return;
  found->second.has_above = false;
  fail_job(key, error);
}

}  // namespace netfold::switching

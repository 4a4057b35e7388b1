#include "switch/jobs/admission.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace netfold::switching {
namespace {

// A worker keeps a quarter of its slots in flight (group/via_switch/window.h) and needs the rest to run ahead of a
// chunk that was lost. The bytes in flight must cover bandwidth times delay, which is bytes, not packets: about 370 kB
// by default.
constexpr std::uint32_t kSlotBytesDefault = 1536 * 1024;
constexpr std::uint32_t kSlotsOfAWindow = 4;
constexpr std::uint32_t kSlotsLeast = 64;
constexpr std::uint32_t kSlotsLeastPerShard = 2 * wire::kReorderSlackChunks;  // room to find a gap, and to run on

control::Refused refused(ErrorCode code, std::string reason) {
  return control::Refused{std::move(reason), code, kNoRank, 0};
}

std::uint16_t payload_for(std::uint32_t mtu, bool tagged) {
  const std::uint32_t overhead = wire::kUdpIpBytes + wire::kHeaderBytes + (tagged ? wire::kTagBytes : 0);
  const std::uint32_t room = std::min<std::uint32_t>(mtu - overhead, control::kPayloadBytesMax);
  return static_cast<std::uint16_t>(room & ~3u);  // whole 4-byte elements
}

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string name_of_rank(std::uint16_t rank) {
  return rank == control::kHostRank ? "the host" : fmt::format("rank {}", rank);
}

std::optional<control::Refused> check_secret(const SwitchRules& rules, const control::Nonce& nonce,
                                             const control::Join& join) {
  if (!rules.secret) return std::nullopt;
  if (!join.proof) {
    return refused(ErrorCode::kAuth,
                   fmt::format("{} of job '{}' brought no proof of the switch's secret: give the workers the "
                               "secret that the switch was started with",
                               name_of_rank(join.rank), join.job));
  }
  if (!control::equal_in_constant_time(*join.proof, rules.secret->join_proof(nonce, join))) {
    return refused(ErrorCode::kAuth,
                   fmt::format("{} of job '{}' has another secret than the switch: give it the secret that the "
                               "switch was started with",
                               name_of_rank(join.rank), join.job));
  }
  return std::nullopt;
}

std::optional<control::Refused> check_agreement(const control::Join& first, const control::Join& join) {
  const bool same_token = first.token.has_value() == join.token.has_value() &&
                          (!first.token || control::equal_in_constant_time(*first.token, *join.token));
  if (!same_token) {
    return refused(ErrorCode::kAuth,
                   fmt::format("{} has another secret than the workers that joined job '{}' before it: give all "
                               "workers of a job the same secret, or name the job differently",
                               name_of_rank(join.rank), join.job));
  }
  if (first.world != join.world) {
    return refused(ErrorCode::kMismatch,
                   fmt::format("{} says that job '{}' has {} workers, {} said {}: start all with the same "
                               "world size",
                               name_of_rank(join.rank), join.job, join.world, name_of_rank(first.rank), first.world));
  }
  if (first.bfp != join.bfp) {
    return refused(ErrorCode::kMismatch,
                   fmt::format("{} wants bfp<block {}, mantissa {}> in job '{}', {} wants <block {}, mantissa "
                               "{}>: start all with the same shape",
                               name_of_rank(join.rank), join.bfp.block, join.bfp.mantissa, join.job,
                               name_of_rank(first.rank), first.bfp.block, first.bfp.mantissa));
  }
  return std::nullopt;
}

std::optional<control::Refused> check_below(const SwitchRules& rules, const control::Join& join) {
  if (!rules.parent.empty() && (join.is_host() || join.is_hosted)) {
    return refused(ErrorCode::kInvalidArgument,
                   fmt::format("job '{}' has a host, and this switch is below the one at {}: start such a job at a "
                               "switch that is below no other one",
                               join.job, rules.parent));
  }
  if (!join.below) return std::nullopt;
  return check_cycle(rules, {&join.below->id, 1});
}

std::optional<control::Refused> check_cycle(const SwitchRules& rules, std::span<const control::SwitchId> below) {
  if (std::find(below.begin(), below.end(), rules.id) == below.end()) return std::nullopt;
  return refused(ErrorCode::kInvalidArgument,
                 "it is below the switch that asks, so the switches' parents go round in a cycle: start the topmost "
                 "switch without a parent");
}

Grant plan_grant(const SwitchRules& rules, std::span<const control::Join* const> joins, std::size_t memory_bytes,
                 const GrantBounds& bounds) {
  std::uint32_t window = 0, mtu = control::kMtuMax;
  for (const control::Join* join : joins) {
    window = std::max(window, join->window);
    mtu = std::min(mtu, join->mtu);
  }
  const std::uint32_t least = std::min(std::max(kSlotsLeast, kSlotsLeastPerShard * rules.shards()), bounds.slots_max);
  Grant grant;
  grant.lease.world = bounds.contributors > 0 ? bounds.contributors : joins.front()->world;
  grant.lease.bfp = joins.front()->bfp;
  grant.lease.shards = rules.shards();
  grant.lease.payload_bytes = std::min(payload_for(mtu, rules.tagged), bounds.payload_max);
  grant.lease.is_tree = std::ranges::any_of(joins, [](const control::Join* join) { return join->below.has_value(); });
  const std::uint32_t wished =
      window == 0 ? std::bit_floor(kSlotBytesDefault / grant.lease.payload_bytes)
                  : std::bit_ceil(std::min(window, control::kSlotsMax / kSlotsOfAWindow)) * kSlotsOfAWindow;
  grant.slots_wished = std::clamp(wished, least, bounds.slots_max);
  grant.lease.slots = grant.slots_wished;
  grant.memory_bytes = rules.memory_bytes(grant.lease);
  while (grant.memory_bytes > memory_bytes && grant.lease.slots > least) {
    grant.lease.slots /= 2;
    grant.memory_bytes = rules.memory_bytes(grant.lease);
  }
  return grant;
}

std::size_t smallest_job_bytes(const SwitchRules& rules) {
  control::Join join;
  join.world = 2;
  const control::Join* const joins[] = {&join};
  return plan_grant(rules, joins, 0).memory_bytes;
}

control::Refused refuse_for_memory(const SwitchRules& rules, const control::Join& join, const Grant& least,
                                   std::size_t used_bytes, double retry_s) {
  const std::size_t free_bytes = rules.memory_max_bytes - std::min(used_bytes, rules.memory_max_bytes);
  control::Refused answer = refused(
      ErrorCode::kRefused,
      fmt::format("job '{}' with {} workers needs {} of the switch's memory even with {} slots, and {} of {} are free: "
                  "wait until another job ends, or give the switch more memory for jobs",
                  join.job, join.world, mebibytes(least.memory_bytes), least.lease.slots, mebibytes(free_bytes),
                  mebibytes(rules.memory_max_bytes)));
  answer.retry_s = retry_s;
  return answer;
}

control::Refused refuse_for_jobs(const SwitchRules& rules, std::size_t jobs, double retry_s) {
  control::Refused answer = refused(
      ErrorCode::kRefused, fmt::format("the switch has {} jobs and takes {} at most: wait until one ends, or let the "
                                       "switch take more jobs",
                                       jobs, rules.jobs_max));
  answer.retry_s = retry_s;
  return answer;
}

}  // namespace netfold::switching

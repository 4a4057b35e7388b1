// The rules of admission, without state: which workers may join a job, and what the job is granted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "wire/control/messages.h"
#include "wire/control/proofs.h"
#include "wire/lease.h"

namespace netfold::switching {

// The values that a switch grants and demands.
struct SwitchRules {
  std::optional<control::Secret> secret;
  bool tagged = false;  // data packets carry a tag; needs a secret
  std::uint16_t jobs_max = 64;
  std::size_t memory_max_bytes = std::size_t{1} << 30;
  Nanoseconds heartbeat = kSecond;
  int heartbeats_missed_max = 4;
  Nanoseconds join_within = 10 * kSecond;  // a connection that has not joined by then is closed
  std::vector<std::uint16_t> udp_ports;    // one a shard
  std::uint16_t path_port = 0;             // UDP: where probes of paths are sent back; 0: nowhere
  bool folds_on_the_way = false;           // workers of a job with a host address their packets to that
  std::string parent;                      // the switch above, "host:port"; "": none
  control::SwitchId id = {};               // random: a switch that meets it again above or below is in a cycle
  std::uint16_t port = 1;                  // of its control connections, for the switch above
  std::uint16_t first_epoch = 0;           // random, so that a switch started anew takes no packet of its former life
  std::function<std::size_t(const wire::Lease&)> memory_bytes;
  std::function<void(std::span<std::byte>)> random;

  std::uint16_t shards() const { return static_cast<std::uint16_t>(udp_ports.size()); }
  Nanoseconds silence_max() const { return heartbeat * heartbeats_missed_max; }
  Nanoseconds retry_after() const { return silence_max() + 2 * heartbeat; }  // by then a silent worker was noticed
};

// Nothing if the worker knows the secret, or the switch has no secret.
std::optional<control::Refused> check_secret(const SwitchRules& rules, const control::Nonce& nonce,
                                             const control::Join& join);

// Nothing if `join` fits the job that `first` began.
std::optional<control::Refused> check_agreement(const control::Join& first, const control::Join& join);

// Nothing if a switch may join below this one, or `join` is not a switch's.
std::optional<control::Refused> check_below(const SwitchRules& rules, const control::Join& join);

// Nothing if this switch is not among those.
std::optional<control::Refused> check_cycle(const SwitchRules& rules, std::span<const control::SwitchId> below);

std::string name_of_rank(std::uint16_t rank);  // "rank 3", "the host"

// Slots, shards and payload for these workers, in at most `memory_bytes`; key, job and epoch are left to the caller.
// Slots are halved until they fit, down to a least number that still keeps a window moving.
struct Grant {
  wire::Lease lease;
  std::size_t memory_bytes = 0;
  std::uint32_t slots_wished = 0;
};
// Further bounds: of the contributors, if these are not all of the job's ranks, and of other switches in a tree.
struct GrantBounds {
  std::uint16_t contributors = 0;  // 0: all ranks
  std::uint32_t slots_max = control::kSlotsMax;
  std::uint16_t payload_max = control::kPayloadBytesMax;
};
Grant plan_grant(const SwitchRules& rules, std::span<const control::Join* const> joins, std::size_t memory_bytes,
                 const GrantBounds& bounds = {});

// The memory of the smallest job of two workers with packets of 1500 bytes.
std::size_t smallest_job_bytes(const SwitchRules& rules);

control::Refused refuse_for_memory(const SwitchRules& rules, const control::Join& join, const Grant& least,
                                   std::size_t used_bytes, double retry_s);
control::Refused refuse_for_jobs(const SwitchRules& rules, std::size_t jobs, double retry_s);

}  // namespace netfold::switching

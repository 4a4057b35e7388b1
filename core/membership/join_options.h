// What a member says about itself when it joins a job at a switch, and how long it tries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "link/road.h"
#include "numbers/format.h"
#include "wire/control/messages.h"

namespace netfold::membership {

struct JoinOptions {
  std::string switch_address;  // "host:port"
  std::string switch_place;    // for errors, behind the address: "in rank 0's process"; "": a switch of its own
  std::string job;
  std::uint16_t world = 1;
  std::uint16_t rank = 0;     // control::kHostRank: the job's observer
  std::string secret;         // "": none
  bool is_hosted = false;     // the job has an observer: wait for it too
  bool require_auth = false;  // join only a switch that proves the secret and tags packets
  std::uint16_t udp_port = 0;
  std::uint32_t mtu = 0;  // of the path; 0: it is found
  // The largest packet that may pass: the switch is asked which sizes do, and `mtu` counts only where it does not
  // answer. 0: `mtu` is known.
  std::uint32_t path_bytes_max = 0;
  numbers::BfpShape bfp = {};
  link::Road road = {};
  std::uint32_t window = 0;          // chunks outstanding at most; 0: the switch's default of slots
  double timeout_s = 30;             // for all of joining, and for an all-reduce to make progress
  double connect_timeout_s = 30;     // of that, until a switch answers at the address
  std::function<bool()> keep_going;  // asked at least every 100 ms while joining; false gives up
  // Of a switch that joins the switch above it for its workers (switch/uplinks.h).
  std::optional<control::Below> below = std::nullopt;
  std::optional<control::Proof> token = std::nullopt;  // its workers', for a switch above without a secret
};

// What to say as `mtu` about a path of this MTU: messages count it as of IPv4, whose header is shorter than IPv6's.
inline std::uint32_t mtu_to_say(std::uint32_t path_mtu, const IpAddress& ip) {
  const std::uint32_t longer = ip.header_bytes() - IpAddress().header_bytes();
  return std::clamp(path_mtu - std::min(longer, path_mtu), control::kMtuMin, control::kMtuMax);
}

// The words for the switch in errors.
inline std::string switch_name(const JoinOptions& options) {
  std::string name = options.switch_address;
  if (!options.switch_place.empty()) name += " " + options.switch_place;
  if (!options.road.interface.empty()) name += " by " + options.road.interface;
  return name;
}

}  // namespace netfold::membership

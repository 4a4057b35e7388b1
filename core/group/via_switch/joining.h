// How a worker joins a job at a switch, over sockets: the part that blocks. join_attempts.h decides each step;
// control_connection.h holds the conversation after it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "group/via_switch/control_connection.h"
#include "numbers/format.h"

namespace netfold::group {

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
  std::uint32_t mtu = 0;  // of the path; 0: as the kernel's routing table has it
  numbers::BfpShape bfp = {};
  std::uint32_t window = 0;          // chunks outstanding at most; 0: the switch's default of slots
  double timeout_s = 30;             // for all of joining, and for an all-reduce to make progress
  double connect_timeout_s = 30;     // of that, until a switch answers at the address
  std::function<bool()> keep_going;  // asked at least every 100 ms while joining; false gives up
};

// The words for the switch in errors.
inline std::string switch_name(const JoinOptions& options) {
  return options.switch_place.empty() ? options.switch_address : options.switch_address + " " + options.switch_place;
}

// Tries again while the switch cannot be reached, so that workers may start before it. Errors: kInvalidArgument,
// kSwitchFailed (unreachable), kTimeout (ranks that did not come), kRefused, kMismatch, kAuth, kSystem (interrupted).
Result<std::unique_ptr<ControlConnection>> join_switch(JoinOptions options);

// Says goodbye, with the error if there is one, and returns when the switch has heard it or has had time enough.
void leave_switch(ControlConnection& connection, const std::optional<Error>& error = std::nullopt);

}  // namespace netfold::group

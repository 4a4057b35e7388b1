// The settings of the plugin, from the environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "numbers/format.h"
#include "wire/control/proofs.h"

namespace netfold::nccl {

struct Settings {
  std::vector<std::string> switches;  // NETFOLD_SWITCH, with commas; none: no collectives in the network
  std::string secret_text;            // NETFOLD_SECRET
  std::optional<control::Secret> secret;
  bool requires_auth = false;                       // NETFOLD_REQUIRE_AUTH; then there is a secret
  Nanoseconds timeout = 0;                          // NETFOLD_TIMEOUT_S: without progress
  Nanoseconds connect_timeout = 0;                  // NETFOLD_CONNECT_TIMEOUT_S
  int streams = 0;                                  // NETFOLD_TCP_STREAMS: connections to a peer
  numbers::Format floats = numbers::Format::kFp32;  // NETFOLD_FORMAT: of float32 on the way to the switch
  std::string interfaces;                           // NCCL_SOCKET_IFNAME
};

// kInvalidArgument names the variable and says what it may be.
Result<Settings> read_settings();

}  // namespace netfold::nccl

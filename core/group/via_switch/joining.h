// How a worker joins a job at a switch, over sockets: the part that blocks. membership/ decides each step, and
// holds the conversation after it.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "membership/control_connection.h"
#include "membership/join_options.h"

namespace netfold::group {

using membership::ControlConnection;
using membership::JoinOptions;
using membership::switch_name;

// Tries again while the switch cannot be reached, so that workers may start before it. Errors: kInvalidArgument,
// kSwitchFailed (unreachable), kTimeout (ranks that did not come), kRefused, kMismatch, kAuth, kSystem (interrupted).
// `link`: of the data packets, to find the MTU of the path with; null: the routing table is believed.
Result<std::unique_ptr<ControlConnection>> join_switch(JoinOptions options, link::Link* link = nullptr);

// Says goodbye, with the error if there is one, and returns when the switch has heard it or has had time enough.
void leave_switch(ControlConnection& connection, const std::optional<Error>& error = std::nullopt);

}  // namespace netfold::group

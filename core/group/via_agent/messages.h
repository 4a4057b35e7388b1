// The messages between a worker and its agent outside the channel, each one JSON object:
//
//   worker                                      agent
//   {"open": "host" | "switch", "version", "probe", "token", "options"}
//                                               {"opened": {...}} with the channel, the undo log and both bells
//   {"connect": ["host:port", ...], "order": [rank, ...]}
//                                               {"connected": true}    a rank among others, once; see PeerGroup
//   {"count": true}                             {"counters": {...}}
//   {"close": "" | reason}                      {"closed": {...}}      counters; nothing of the worker is touched again
//
// and {"error": {"code", "message", "rank"}} where the agent cannot.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "group/via_peers/peer_group.h"
#include "group/via_switch/switch_group.h"

namespace netfold::group {

struct Connecting {
  std::vector<std::string> addresses;  // by rank
  std::vector<int> order;              // physical
};

nlohmann::json to_json(const Connecting& connecting);
nlohmann::json to_json(const PeerGroupOptions& options);
nlohmann::json to_json(const SwitchGroupOptions& options);
nlohmann::json to_json(const Error& error);

// kInvalidArgument for what is missing or makes no sense.
Result<PeerGroupOptions> host_group_options(const nlohmann::json& message);
Result<SwitchGroupOptions> client_options(const nlohmann::json& message);
Result<Connecting> connecting_of(const nlohmann::json& message);
Error error_of(const nlohmann::json& message);

}  // namespace netfold::group

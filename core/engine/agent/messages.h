// What a worker and its agent say to each other beside the channel, each message one JSON object:
//
//   worker                                      agent
//   {"open": "host" | "switch", "version", "probe", "token", "options"}
//                                               {"opened": {...}} with the channel, the undo log and both bells
//   {"connect": ["host:port", ...], "order": [rank, ...]}
//                                               {"connected": true}    a rank among others, once; see HostGroup
//   {"count": true}                             {"counters": {...}}
//   {"close": "" | reason}                      {"closed": {...}}      counters; nothing of the worker is touched again
//
// and {"error": {"code", "message", "rank"}} where the agent cannot.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/client.h"
#include "engine/host_group.h"

namespace netfold::engine {

struct Connecting {
  std::vector<std::string> addresses;  // by rank
  std::vector<int> order;              // physical
};

nlohmann::json to_json(const Connecting& connecting);
nlohmann::json to_json(const HostGroupOptions& options);
nlohmann::json to_json(const ClientOptions& options);
nlohmann::json to_json(const Error& error);

// kInvalidArgument for what is missing or makes no sense.
Result<HostGroupOptions> host_group_options(const nlohmann::json& message);
Result<ClientOptions> client_options(const nlohmann::json& message);
Result<Connecting> connecting_of(const nlohmann::json& message);
Error error_of(const nlohmann::json& message);

}  // namespace netfold::engine

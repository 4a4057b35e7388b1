// What a worker and its agent say to each other beside the channel, each message one JSON object:
//
//   worker                                      agent
//   {"open": "host" | "switch", "version", "probe", "token", "options"}
//                                               {"opened": {...}} with the channel, the undo log and both bells
//   {"connect": ["host:port", ...]}             {"connected": true}    a rank among others, once
//   {"count": true}                             {"counters": {...}}
//   {"close": "" | reason}                      {"closed": {...}}      counters; nothing of the worker is touched again
//
// and {"error": {"code", "message", "rank"}} where the agent cannot.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/client.h"
#include "engine/host_group.h"

namespace netfold::engine {

nlohmann::json to_json(const HostGroupOptions& options);
nlohmann::json to_json(const ClientOptions& options);
nlohmann::json to_json(const Error& error);

// kInvalidArgument for what is missing or makes no sense.
Result<HostGroupOptions> host_group_options(const nlohmann::json& message);
Result<ClientOptions> client_options(const nlohmann::json& message);
Result<std::vector<std::string>> addresses_of(const nlohmann::json& list);
Error error_of(const nlohmann::json& message);

}  // namespace netfold::engine

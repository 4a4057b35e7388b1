#include "group/via_agent/messages.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "link/tcp/tcp_stream.h"
#include "wire/control/fields.h"

namespace netfold::group {
namespace {

using nlohmann::json;

constexpr std::size_t kTextMax = 4096;
constexpr std::int64_t kWorldMax = 65535;
constexpr double kSecondsMin = 1e-3, kSecondsMax = 1e9;

tl::unexpected<Error> wrong(const std::string& problem) {
  return fail(ErrorCode::kInvalidArgument, "a worker's message to its agent: " + problem);
}

}  // namespace

json to_json(const PeerGroupOptions& options) {
  return {{"rank", options.rank},
          {"world", options.world},
          {"listen", options.listen},
          {"timeout_s", options.timeout_s},
          {"shm", options.shm},
          {"tcp_streams", options.tcp_streams},
          {"secret", options.secret},
          {"dscp", options.dscp},
          {"interfaces", options.interfaces},
          {"require_auth", options.require_auth},
          {"elastic", options.elastic}};
}

Result<PeerGroupOptions> host_group_options(const json& message) {
  control::Fields fields(message);
  PeerGroupOptions options;
  options.rank = fields.integer<int>("rank", 0, kWorldMax);
  options.world = fields.integer<int>("world", 1, kWorldMax);
  options.listen = fields.text("listen", kTextMax);
  options.timeout_s = fields.real("timeout_s", kSecondsMin, kSecondsMax);
  options.shm = fields.boolean("shm");
  options.tcp_streams = fields.integer<int>("tcp_streams", 1, link::kTcpStreamsMax);
  options.secret = fields.text("secret", kTextMax);
  options.dscp = fields.integer<std::uint8_t>("dscp", 0, link::Road::kDscpMax);
  options.require_auth = fields.boolean("require_auth");
  options.elastic = fields.boolean("elastic");
  options.interfaces = fields.texts("interfaces", link::kTcpStreamsMax, kTextMax);
  if (fields.problem()) return wrong(*fields.problem());
  return options;
}

json to_json(const SwitchGroupOptions& options) {
  return {{"switch", options.switch_address},
          {"place", options.switch_place},
          {"job", options.job},
          {"world", options.world},
          {"rank", options.rank},
          {"secret", options.secret},
          {"require_auth", options.require_auth},
          {"timeout_s", options.timeout_s},
          {"connect_timeout_s", options.connect_timeout_s},
          {"window", options.window},
          {"dscp", options.road.dscp},
          {"interface", options.road.interface},
          {"block", options.bfp.block},
          {"mantissa", options.bfp.mantissa},
          {"faults", options.faults},
          {"pcap", options.pcap_path}};
}

Result<SwitchGroupOptions> client_options(const json& message) {
  control::Fields fields(message);
  SwitchGroupOptions options;
  options.switch_address = fields.text("switch", kTextMax);
  options.switch_place = fields.text("place", kTextMax);
  options.job = fields.text("job", kTextMax);
  options.world = fields.integer<std::uint16_t>("world", 1, kWorldMax);
  options.rank = fields.integer<std::uint16_t>("rank", 0, kWorldMax);
  options.secret = fields.text("secret", kTextMax);
  options.require_auth = fields.boolean("require_auth");
  options.timeout_s = fields.real("timeout_s", kSecondsMin, kSecondsMax);
  options.connect_timeout_s = fields.real("connect_timeout_s", kSecondsMin, kSecondsMax);
  options.window = fields.integer<std::uint32_t>("window", 0, UINT32_MAX);
  options.road.dscp = fields.integer<std::uint8_t>("dscp", 0, link::Road::kDscpMax);
  options.road.interface = fields.text("interface", kTextMax);
  options.bfp = {fields.integer<std::uint8_t>("block", 0, 255), fields.integer<std::uint8_t>("mantissa", 0, 255)};
  options.faults = fields.text("faults", kTextMax);
  options.pcap_path = fields.text("pcap", kTextMax);
  if (!fields.problem() && !numbers::is_valid(options.bfp)) fields.complain<int>("block", "is not a bfp block");
  if (fields.problem()) return wrong(*fields.problem());
  return options;
}

json to_json(const Connecting& connecting) {
  return {{"connect", connecting.addresses}, {"order", connecting.order}};
}

Result<Connecting> connecting_of(const json& message) {
  const auto are = [&](const char* name, auto is_right) {
    const auto list = message.find(name);
    return list != message.end() && list->is_array() && std::all_of(list->begin(), list->end(), is_right);
  };
  const auto is_text = [](const json& each) { return each.is_string(); };
  const auto is_rank = [](const json& each) {
    return each.is_number_unsigned() && each.get<std::uint64_t>() < kWorldMax;
  };
  if (!are("connect", is_text)) return wrong("it has no addresses");
  if (!are("order", is_rank)) return wrong("its order is not of ranks");
  return Connecting{message["connect"].get<std::vector<std::string>>(), message["order"].get<std::vector<int>>()};
}

json to_json(const Error& error) {
  return {{"code", static_cast<int>(error.code)}, {"message", error.message}, {"rank", error.rank}};
}

Error error_of(const json& message) {
  control::Fields fields(message);
  const Error error{fields.integer<ErrorCode>("code", 0, static_cast<int>(ErrorCode::kSystem)),
                    fields.text("message", SIZE_MAX), fields.integer<int>("rank", kNoRank, kWorldMax)};
  if (fields.problem()) return {ErrorCode::kSystem, "the agent sent an error that makes no sense", kNoRank};
  return error;
}

}  // namespace netfold::group

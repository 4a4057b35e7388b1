#include "wire/control/messages.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/hex.h"
#include "base/json.h"
#include "wire/control/fields.h"

namespace netfold::control {
namespace {

using Json = nlohmann::ordered_json;  // keeps `type` first

ErrorCode read_code(Fields& fields) {
  const std::string name = fields.text("code", 64);
  for (int i = 0; i <= static_cast<int>(ErrorCode::kSystem); ++i) {
    if (name == name_of(static_cast<ErrorCode>(i))) return static_cast<ErrorCode>(i);
  }
  return fields.complain<ErrorCode>("code", "must be the name of an error code");
}

int read_rank_or_none(Fields& fields) {
  return fields.integer<int>("rank", kNoRank, kWorldMax - 1);
}

// A reason is for people: the sender cuts it, so a longer one is a violation.
std::string read_reason(Fields& fields) {
  return printable(fields.text("reason", kReasonBytesMax), kReasonBytesMax);
}

Message read_hello(Fields& fields) {
  Hello hello;
  hello.version = fields.integer<std::uint16_t>("version", 1, 65535);
  hello.oldest_version = hello.version;
  if (fields.has("oldest_version")) {
    hello.oldest_version = fields.integer<std::uint16_t>("oldest_version", 1, hello.version);
  }
  if (!common_version(hello)) return hello;  // another version's fields mean nothing to us
  hello.nonce = fields.hex<Nonce>("nonce");
  hello.auth = fields.boolean("auth");
  hello.tagged = fields.boolean("tagged");
  hello.heartbeat_s = fields.real("heartbeat_s", kHeartbeatSecondsMin, kHeartbeatSecondsMax);
  if (hello.tagged && !hello.auth) fields.complain<bool>("tagged", "needs 'auth'");
  if (fields.has("path_port")) hello.path_port = fields.integer<std::uint16_t>("path_port", 1, 65535);
  return hello;
}

Below read_below(Fields& fields) {
  Below below;
  below.udp_ports = fields.integers("below_ports", 1, 65535, kBelowPortsMax);
  below.port = fields.integer<std::uint16_t>("below_port", 1, 65535);
  below.id = fields.hex<SwitchId>("switch_id");
  if (!std::has_single_bit(below.udp_ports.size())) {
    fields.complain<int>("below_ports", "must name a power of two of ports");
  }
  return below;
}

Message read_join(Fields& fields) {
  Join join;
  join.version = fields.integer<std::uint16_t>("version", 1, 65535);
  if (!is_spoken(join.version)) return join;
  join.job = fields.text("job", kJobNameBytesMax);
  if (!fields.problem() && !is_valid_job_name(join.job)) {
    fields.complain<int>("job", fmt::format("must be 1 to {} printable ASCII characters", kJobNameBytesMax));
  }
  join.world = fields.integer<std::uint16_t>("world", 1, kWorldMax);
  join.rank = fields.integer<std::uint16_t>("rank", kNoRank, std::max(join.world, std::uint16_t{1}) - 1);
  join.udp_port = fields.integer<std::uint16_t>("udp_port", 1, 65535);
  join.mtu = fields.integer<std::uint32_t>("mtu", kMtuMin, kMtuMax);
  join.bfp.block = fields.integer<std::uint8_t>("block", 0, 255);
  join.bfp.mantissa = fields.integer<std::uint8_t>("mantissa", 0, 255);
  if (!std::has_single_bit(join.bfp.block) || join.bfp.block < 8 || join.bfp.block > 128) {
    fields.complain<int>("block", "must be a power of two from 8 to 128");
  }
  if (join.bfp.mantissa < 2 || join.bfp.mantissa > 7) fields.complain<int>("mantissa", "must be from 2 to 7");
  join.window = fields.integer<std::uint32_t>("window", 0, kSlotsMax);
  join.timeout_s = fields.real("timeout_s", kTimeoutSecondsMin, kTimeoutSecondsMax);
  join.nonce = fields.hex<Nonce>("nonce");
  join.proof = fields.optional_hex<Proof>("proof");
  join.token = fields.optional_hex<Proof>("token");
  if (fields.has("switch_id")) join.below = read_below(fields);
  if (join.below && join.is_host()) fields.complain<int>("switch_id", "is not for a host");
  join.is_hosted = join.is_host() || (fields.has("hosted") && fields.boolean("hosted"));
  return join;
}

Message read_waiting(Fields& fields) {
  return Waiting{fields.integers("present", 0, kWorldMax - 1, kWorldMax)};
}

Message read_admitted(Fields& fields) {
  Admitted admitted;
  admitted.job_id = fields.integer<std::uint16_t>("job_id", 0, 65535);
  admitted.epoch = fields.integer<std::uint16_t>("epoch", 0, 65535);
  admitted.slots = fields.integer<std::uint32_t>("slots", 1, kSlotsMax);
  admitted.payload_bytes = fields.integer<std::uint16_t>("payload_bytes", 4, kPayloadBytesMax);
  admitted.udp_ports = fields.integers("udp_ports", 1, 65535, 256);
  admitted.tagged = fields.boolean("tagged");
  admitted.salt = fields.hex<Nonce>("salt");
  if (fields.has("data_ip")) admitted.data_ip = fields.integer<std::uint32_t>("data_ip", 1, UINT32_MAX);
  if (fields.has("data_ip6")) {
    const auto bytes = fields.hex<std::array<std::byte, IpAddress::kBytes>>("data_ip6");
    admitted.data_ip = IpAddress::from_v6(bytes);
    if (admitted.data_ip->is_v4()) fields.complain<int>("data_ip6", "must be an IPv6 address");
  }
  admitted.proof = fields.optional_hex<Proof>("proof");
  admitted.in_tree = fields.has("in_tree") && fields.boolean("in_tree");
  if (fields.has("above")) admitted.above = printable(fields.text("above", kAddressBytesMax), kAddressBytesMax);
  if (!std::has_single_bit(admitted.slots)) fields.complain<int>("slots", "must be a power of two");
  if (admitted.payload_bytes % 4 != 0) fields.complain<int>("payload_bytes", "must be a multiple of 4");
  if (!std::has_single_bit(admitted.udp_ports.size()) || admitted.udp_ports.size() > admitted.slots) {
    fields.complain<int>("udp_ports", "must name a power of two of ports, at most as many as slots");
  }
  return admitted;
}

Message read_refused(Fields& fields) {
  Refused refused;
  refused.reason = read_reason(fields);
  refused.code = read_code(fields);
  refused.rank = read_rank_or_none(fields);
  refused.retry_s = fields.real("retry_s", 0, kTimeoutSecondsMax);
  return refused;
}

Message read_heartbeat(Fields& fields) {
  Heartbeat heartbeat;
  if (fields.has("of_fair_share")) {
    heartbeat.link_share = LinkShare{.of_fair = fields.real("of_fair_share", 1, kOfFairShareMax)};
  } else if (fields.has("grant_bytes_s")) {
    heartbeat.link_share = LinkShare{.grant_bytes_s = fields.real("grant_bytes_s", 0, kBytesPerSecondMax)};
  }
  heartbeat.is_late = fields.has("is_late") && fields.boolean("is_late");
  if (!fields.has("of_switch")) return heartbeat;
  heartbeat.shared = SharedWork{fields.real("of_switch", 0, 1), fields.real("switch_bytes_s", 0, kBytesPerSecondMax),
                                fields.real("link_bytes_s", 0, kBytesPerSecondMax)};
  return heartbeat;
}

Message read_left(Fields& fields) {
  return Left{fields.integer<std::uint16_t>("rank", 0, kWorldMax - 1)};
}

Message read_failed(Fields& fields) {
  Failed failed;
  failed.reason = read_reason(fields);
  failed.code = read_code(fields);
  failed.rank = read_rank_or_none(fields);
  return failed;
}

Message read_leave(Fields& fields) {
  Leave leave;
  leave.failed = fields.boolean("failed");
  if (!leave.failed) return leave;
  leave.reason = read_reason(fields);
  leave.code = read_code(fields);
  leave.rank = read_rank_or_none(fields);
  return leave;
}

Message read_ranks(Fields& fields) {
  Ranks ranks;
  ranks.ranks = fields.integers("ranks", 0, kWorldMax - 1, kWorldMax);
  ranks.window = fields.integer<std::uint32_t>("window", 0, kSlotsMax);
  ranks.slots = fields.integer<std::uint32_t>("slots", 1, kSlotsMax);
  ranks.payload_bytes = fields.integer<std::uint16_t>("payload_bytes", 4, kPayloadBytesMax);
  ranks.through = fields.hexes<SwitchId>("through", kSwitchesMax);
  const auto disorder = std::adjacent_find(ranks.ranks.begin(), ranks.ranks.end(), std::greater_equal<>{});
  if (disorder != ranks.ranks.end() || ranks.ranks.empty()) {
    fields.complain<int>("ranks", "must be ascending, each once, and not empty");
  }
  if (!std::has_single_bit(ranks.slots)) fields.complain<int>("slots", "must be a power of two");
  return ranks;
}

using Reader = Message (*)(Fields&);
constexpr std::pair<const char*, Reader> kReaders[] = {
    // in the order of Message's alternatives
    {"hello", read_hello},     {"join", read_join},           {"waiting", read_waiting}, {"admitted", read_admitted},
    {"refused", read_refused}, {"heartbeat", read_heartbeat}, {"left", read_left},       {"failed", read_failed},
    {"leave", read_leave},     {"ranks", read_ranks},
};
static_assert(std::size(kReaders) == std::variant_size_v<Message>);

struct Writer {
  Json& json;

  void operator()(const Hello& m) {
    json["version"] = m.version;
    if (m.oldest_version != m.version) json["oldest_version"] = m.oldest_version;
    json["nonce"] = to_hex(m.nonce);
    json["auth"] = m.auth;
    json["tagged"] = m.tagged;
    json["heartbeat_s"] = m.heartbeat_s;
    if (m.path_port != 0) json["path_port"] = m.path_port;
  }
  void operator()(const Join& m) {
    json["version"] = m.version;
    json["job"] = m.job;
    json["world"] = m.world;
    json["rank"] = m.is_host() ? kNoRank : int{m.rank};
    json["udp_port"] = m.udp_port;
    json["mtu"] = m.mtu;
    json["block"] = m.bfp.block;
    json["mantissa"] = m.bfp.mantissa;
    json["window"] = m.window;
    json["timeout_s"] = m.timeout_s;
    json["nonce"] = to_hex(m.nonce);
    if (m.proof) json["proof"] = to_hex(*m.proof);
    if (m.token) json["token"] = to_hex(*m.token);
    if (m.is_hosted && !m.is_host()) json["hosted"] = true;
    if (!m.below) return;
    json["below_ports"] = m.below->udp_ports;
    json["below_port"] = m.below->port;
    json["switch_id"] = to_hex(m.below->id);
  }
  void operator()(const Waiting& m) { json["present"] = m.present; }
  void operator()(const Admitted& m) {
    json["job_id"] = m.job_id;
    json["epoch"] = m.epoch;
    json["slots"] = m.slots;
    json["payload_bytes"] = m.payload_bytes;
    json["udp_ports"] = m.udp_ports;
    json["tagged"] = m.tagged;
    json["salt"] = to_hex(m.salt);
    if (m.data_ip && m.data_ip->is_v4()) json["data_ip"] = m.data_ip->v4();
    if (m.data_ip && !m.data_ip->is_v4()) json["data_ip6"] = to_hex(m.data_ip->v6());
    if (m.proof) json["proof"] = to_hex(*m.proof);
    if (m.in_tree) json["in_tree"] = true;
    if (!m.above.empty()) json["above"] = printable(m.above, kAddressBytesMax);
  }
  void operator()(const Refused& m) {
    why(m.reason, m.code, m.rank);
    json["retry_s"] = m.retry_s;
  }
  void operator()(const Heartbeat& m) {
    if (m.link_share && m.link_share->grant_bytes_s == 0) json["of_fair_share"] = m.link_share->of_fair;
    if (m.link_share && m.link_share->grant_bytes_s > 0) json["grant_bytes_s"] = m.link_share->grant_bytes_s;
    if (m.is_late) json["is_late"] = true;
    if (!m.shared) return;
    json["of_switch"] = m.shared->of_switch;
    json["switch_bytes_s"] = m.shared->switch_bytes_s;
    json["link_bytes_s"] = m.shared->link_bytes_s;
  }
  void operator()(const Left& m) { json["rank"] = m.rank; }
  void operator()(const Failed& m) { why(m.reason, m.code, m.rank); }
  void operator()(const Leave& m) {
    json["failed"] = m.failed;
    if (m.failed) why(m.reason, m.code, m.rank);
  }
  void operator()(const Ranks& m) {
    json["ranks"] = m.ranks;
    json["window"] = m.window;
    json["slots"] = m.slots;
    json["payload_bytes"] = m.payload_bytes;
    json["through"] = Json::array();
    for (const SwitchId& id : m.through) json["through"].push_back(to_hex(id));
  }

  void why(const std::string& reason, ErrorCode code, int rank) {
    json["reason"] = printable(reason, kReasonBytesMax);
    json["code"] = name_of(code);
    json["rank"] = rank;
  }
};

}  // namespace

Result<Message> parse(std::string_view line) {
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("not a control message of Netfold: {}", what));
  };
  if (line.size() >= kLineBytesMax) return wrong(fmt::format("a line is longer than {} bytes", kLineBytesMax));
  const auto object = parse_json(line);
  if (object.is_discarded()) return wrong(fmt::format("'{}' is no JSON", printable(line, 60)));
  if (!object.is_object()) return wrong("a line must hold one JSON object");
  const auto type = object.find("type");
  if (type == object.end() || !type->is_string()) return wrong("it has no 'type'");
  const auto& name = type->get_ref<const std::string&>();
  for (const auto& [known, read] : kReaders) {
    if (name != known) continue;
    Fields fields(object);
    Message message = read(fields);
    if (fields.problem()) return wrong(fmt::format("in '{}', {}", name, *fields.problem()));
    return message;
  }
  return wrong(fmt::format("type '{}' is unknown", printable(name, 40)));
}

std::string emit(const Message& message) {
  Json json;
  json["type"] = type_of(message);
  std::visit(Writer{json}, message);
  return json_text(json, true) + "\n";
}

bool is_spoken(std::uint16_t version) {
  return version >= kControlVersionOldest && version <= kControlVersion;
}

std::optional<std::uint16_t> common_version(const Hello& hello) {
  const std::uint16_t newest = std::min(hello.version, kControlVersion);
  if (newest < std::max(hello.oldest_version, kControlVersionOldest)) return std::nullopt;
  return newest;
}

const char* type_of(const Message& message) {
  return kReaders[message.index()].first;
}

bool is_valid_job_name(std::string_view name) {
  return !name.empty() && name.size() <= kJobNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string clean(text.substr(0, bytes_max));
  for (char& c : clean) {
    if (c < 0x20 || c >= 0x7f) c = '?';  // UTF-8 too: reasons are ASCII, and a cut never splits a character
  }
  return clean;
}

}  // namespace netfold::control

#include "group/via_roce/message_channel.h"

#include <fmt/core.h>

#include "base/json.h"
#include "wire/roce_network.h"

namespace netfold::group {
namespace {

nlohmann::json to_json(const QpInfo& card) {
  return {{"version", static_cast<int>(card.version)},
          {"mac", card.mac},
          {"gid", card.gid},
          {"queue_pair", card.queue_pair},
          {"first_psn", card.first_psn},
          {"address", card.address},
          {"key", card.key},
          {"is_selective", card.is_selective}};
}

QpInfo card_of(const nlohmann::json& fields) {
  QpInfo card;
  const int version = fields.at("version").get<int>();
  if (version != 1 && version != 2) {
    throw nlohmann::json::other_error::create(501, "the version is neither 1 nor 2", nullptr);
  }
  card.version = static_cast<wire::roce::Version>(version);
  fields.at("mac").get_to(card.mac);
  fields.at("gid").get_to(card.gid);
  fields.at("queue_pair").get_to(card.queue_pair);
  fields.at("first_psn").get_to(card.first_psn);
  fields.at("address").get_to(card.address);
  fields.at("key").get_to(card.key);
  fields.at("is_selective").get_to(card.is_selective);
  if (card.version == wire::roce::Version::kV2 && !wire::roce::ipv4_of(card.gid)) {
    throw nlohmann::json::other_error::create(501, "version 2 has IPv4 addresses", nullptr);
  }
  if (card.mac >> 48 != 0 || card.queue_pair > wire::roce::kQueuePairMask || card.first_psn > wire::roce::kPsnMask) {
    throw nlohmann::json::other_error::create(501, "a field is out of range", nullptr);
  }
  return card;
}

}  // namespace

std::string to_text(const QpPairInfo& card) {
  return json_text(nlohmann::json{{"sending", to_json(card.sending)},
                                  {"receiving", to_json(card.receiving)},
                                  {"job", card.job},
                                  {"epoch", card.epoch},
                                  {"one_way", card.one_way}});
}

Result<QpPairInfo> parse_card(const std::string& text) {
  try {
    const auto fields = parse_json(text);
    return QpPairInfo{card_of(fields.at("sending")), card_of(fields.at("receiving")),
                      fields.at("job").get<std::uint16_t>(), fields.at("epoch").get<std::uint16_t>(),
                      fields.value("one_way", false)};  // an older endpoint does not say it
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' does not describe a RoCE endpoint: {}", text, error.what()));
  }
}

}  // namespace netfold::group

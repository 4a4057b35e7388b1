#include "base/json.h"

namespace netfold {

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
}

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, bool ascii) {
  return value.dump(-1, ' ', ascii, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace netfold

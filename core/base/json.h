// JSON as text, both ways. The parser and the writer are compiled once, in json.cc: elsewhere each takes seconds.
// Headers that only name a JSON value include <nlohmann/json_fwd.hpp>.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace netfold {

// is_discarded() if the text is not one JSON value.
nlohmann::json parse_json(std::string_view text);

// On one line, without a newline at its end. Bytes that are not UTF-8 become U+FFFD. With `ascii` every character that
// is not ASCII is escaped.
std::string json_text(const nlohmann::json& value);
std::string json_text(const nlohmann::ordered_json& value, bool ascii = false);

}  // namespace netfold

#include "switch/ethernet/mac_address.h"

#include <fmt/core.h>

namespace netfold::switching {

std::string to_string(MacAddress address) {
  std::string text;
  for (int shift = 40; shift >= 0; shift -= 8) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : ":", address.number >> shift & 0xff);
  }
  return text;
}

std::optional<MacAddress> parse_mac(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef", kUpper = "0123456789ABCDEF";
  if (text.size() != 17) return std::nullopt;
  MacAddress address;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i % 3 == 2) {
      if (text[i] != ':') return std::nullopt;
      continue;
    }
    std::size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) digit = kUpper.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    address.number = address.number << 4 | digit;
  }
  return address;
}

}  // namespace netfold::switching

// Bytes as hex digits, as they travel in texts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace netfold {

// Of an array or vector of bytes: two digits each, in lower case.
template <class Bytes>
std::string to_hex(const Bytes& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const auto each : bytes) {
    const auto value = static_cast<unsigned>(each);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

// False if the text is not that many digits, in lower case; `bytes` holds nothing in particular then.
template <class Bytes>
bool from_hex(std::string_view text, Bytes& bytes) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

}  // namespace netfold

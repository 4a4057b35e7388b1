// Bytes as hex digits, as they travel in texts.
#pragma once

#include <cstddef>
#include <string>

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

}  // namespace netfold

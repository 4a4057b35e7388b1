// Big-endian numbers in packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace netfold::wire {

// `bytes` holds sizeof(Number) more from `at` on; kBytes says how many of them count (3 for a 24-bit number).
template <class Number, std::size_t kBytes = sizeof(Number)>
Number get_big(std::span<const std::byte> bytes, std::size_t at) {
  Number number = 0;
  for (std::size_t i = 0; i < kBytes; ++i) {
    number = static_cast<Number>(static_cast<std::uint64_t>(number) << 8 | static_cast<std::uint64_t>(bytes[at + i]));
  }
  return number;
}

template <class Number, std::size_t kBytes = sizeof(Number)>
void put_big(std::span<std::byte> bytes, std::size_t at, Number number) {
  for (std::size_t i = 0; i < kBytes; ++i) {
    bytes[at + i] = static_cast<std::byte>(static_cast<std::uint64_t>(number) >> (8 * (kBytes - 1 - i)) & 0xff);
  }
}

}  // namespace netfold::wire

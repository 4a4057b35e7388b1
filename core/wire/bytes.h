// Big-endian numbers in packets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace netfold::wire {

template <class Number>
Number swapped_to_big(Number number) {
  if constexpr (std::endian::native == std::endian::big || sizeof(Number) == 1) return number;
  if constexpr (sizeof(Number) == 2) return static_cast<Number>(__builtin_bswap16(number));
  if constexpr (sizeof(Number) == 4) return static_cast<Number>(__builtin_bswap32(number));
  if constexpr (sizeof(Number) == 8) return static_cast<Number>(__builtin_bswap64(number));
}

// kBytes says how many bytes the number takes from `at` on (3 for one of 24 bits).
template <class Number, std::size_t kBytes = sizeof(Number)>
Number get_big(std::span<const std::byte> bytes, std::size_t at) {
  Number number = 0;
  std::memcpy(reinterpret_cast<std::byte*>(&number) + (sizeof(Number) - kBytes), bytes.data() + at, kBytes);
  return swapped_to_big(number);
}

template <class Number, std::size_t kBytes = sizeof(Number)>
void put_big(std::span<std::byte> bytes, std::size_t at, Number number) {
  const Number big = swapped_to_big(number);
  std::memcpy(bytes.data() + at, reinterpret_cast<const std::byte*>(&big) + (sizeof(Number) - kBytes), kBytes);
}

}  // namespace netfold::wire

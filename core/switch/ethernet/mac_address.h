// An Ethernet address, as the 48-bit number it reads as.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace netfold::switching {

struct MacAddress {
  static constexpr std::size_t kBytes = 6;

  std::uint64_t number = 0;

  bool operator==(const MacAddress&) const = default;
  bool is_group() const { return (number >> 40 & 1) != 0; }  // multicast or broadcast
  // 01-80-C2-00-00-0X: for the bridge itself, never forwarded (IEEE 802.1D, table 7-10).
  bool is_reserved() const { return number >> 4 == 0x0180'c200'000; }

  static MacAddress read(const std::byte* at) {
    std::uint32_t high;
    std::uint16_t low;
    std::memcpy(&high, at, sizeof high);
    std::memcpy(&low, at + sizeof high, sizeof low);
    return {std::uint64_t{__builtin_bswap32(high)} << 16 | __builtin_bswap16(low)};
  }
  void write(std::byte* at) const {
    const std::uint32_t high = __builtin_bswap32(static_cast<std::uint32_t>(number >> 16));
    const std::uint16_t low = __builtin_bswap16(static_cast<std::uint16_t>(number));
    std::memcpy(at, &high, sizeof high);
    std::memcpy(at + sizeof high, &low, sizeof low);
  }
};

std::string to_string(MacAddress address);  // "02:00:00:00:00:01"
std::optional<MacAddress> parse_mac(std::string_view text);

}  // namespace netfold::switching

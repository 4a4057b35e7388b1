// The address of a machine: IPv4 or IPv6. A value, so that what decides by addresses needs no sockets.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace netfold {

class IpAddress {
 public:
  static constexpr std::size_t kBytes = 16;

  constexpr IpAddress() = default;  // 0.0.0.0
  // An IPv4 address in host byte order. Held as IPv6 maps it (::ffff:a.b.c.d), so that one comparison serves both.
  constexpr IpAddress(std::uint32_t v4) : low_(kMapped | v4) {}  // NOLINT(google-explicit-constructor)
  // Of 16 bytes in network order. `scope`: the interface of a link-local address, 0 for others.
  static IpAddress from_v6(std::span<const std::byte, kBytes> bytes, std::uint32_t scope = 0);
  std::array<std::byte, kBytes> v6() const;  // the same bytes

  constexpr bool is_v4() const { return high_ == 0 && low_ >> 32 == kMapped >> 32; }
  constexpr std::uint32_t v4() const { return static_cast<std::uint32_t>(low_); }  // of an IPv4 address
  constexpr std::uint32_t scope() const { return scope_; }
  // 0.0.0.0 or ::, which stand for every address of a machine.
  constexpr bool is_any() const { return *this == IpAddress() || (high_ == 0 && low_ == 0); }
  // Of the header before a datagram.
  constexpr std::uint32_t header_bytes() const { return is_v4() ? 20 : 40; }

  constexpr auto operator<=>(const IpAddress&) const = default;

 private:
  static constexpr std::uint64_t kMapped = 0xffff'0000'0000;

  std::uint64_t high_ = 0, low_ = kMapped;
  std::uint32_t scope_ = 0;
};

std::string to_string(const IpAddress& ip);

}  // namespace netfold

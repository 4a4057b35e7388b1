#include "base/ip_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>

namespace netfold {

IpAddress IpAddress::from_v6(std::span<const std::byte, kBytes> bytes, std::uint32_t scope) {
  IpAddress ip;
  ip.high_ = ip.low_ = 0;
  for (std::size_t i = 0; i < kBytes; ++i) {
    std::uint64_t& half = i < kBytes / 2 ? ip.high_ : ip.low_;
    half = half << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  if (!ip.is_v4()) ip.scope_ = scope;
  return ip;
}

std::array<std::byte, IpAddress::kBytes> IpAddress::v6() const {
  std::array<std::byte, kBytes> bytes{};
  for (std::size_t i = 0; i < kBytes; ++i) {
    const std::uint64_t half = i < kBytes / 2 ? high_ : low_;
    bytes[i] = static_cast<std::byte>(half >> (8 * (7 - i % 8)) & 0xff);
  }
  return bytes;
}

std::string to_string(const IpAddress& ip) {
  if (ip.is_v4()) {
    const std::uint32_t v4 = ip.v4();
    return fmt::format("{}.{}.{}.{}", v4 >> 24, v4 >> 16 & 0xff, v4 >> 8 & 0xff, v4 & 0xff);
  }
  const auto bytes = ip.v6();
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, bytes.data(), text.data(), text.size());
  return ip.scope() == 0 ? text.data() : fmt::format("{}%{}", text.data(), ip.scope());
}

}  // namespace netfold

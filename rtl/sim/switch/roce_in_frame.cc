#include "switch/roce_in_frame.h"

#include "switch/ethernet/headers.h"
#include "wire/bytes.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

constexpr std::uint16_t kTagType = 0x8100;
constexpr std::size_t kIpv4CheckAt = 10, kIpv4AddressesAt = 12;
constexpr std::size_t kUdpLengthAt = roce::kIpv4Bytes + 4, kUdpCheckAt = roce::kIpv4Bytes + 6;

}  // namespace

std::size_t content_at(const Bytes& frame) {
  const bool has_tag =
      frame.size() >= roce::kEthernetBytes + kTagBytes && wire::get_big<std::uint16_t>(frame, kTagAt) == kTagType;
  return roce::kEthernetBytes + (has_tag ? kTagBytes : 0);
}

std::optional<RoceInFrame> roce_in(const Bytes& frame) {
  RoceInFrame found{.at = content_at(frame)};
  if (frame.size() < found.at) return std::nullopt;
  const auto type = wire::get_big<std::uint16_t>(frame, found.at - 2);
  const roce::Version version = type == roce::kEtherType ? roce::Version::kV1 : roce::Version::kV2;
  if (type != roce::ether_type_of(version)) return std::nullopt;
  const auto error = roce::parse(std::span(frame).subspan(found.at), found.packet, version);
  return error == roce::ParseError::kNone ? std::optional(found) : std::nullopt;
}

void set_ipv4_checksum(std::span<std::byte> header) {
  wire::put_big(header, kIpv4CheckAt, std::uint16_t{0});
  wire::put_big(header, kIpv4CheckAt, static_cast<std::uint16_t>(~switching::checksum(header)));
}

void set_udp_checksum(std::span<std::byte> packet) {
  const auto udp_bytes = wire::get_big<std::uint16_t>(packet, kUdpLengthAt);
  wire::put_big(packet, kUdpCheckAt, std::uint16_t{0});
  const std::uint32_t of_addresses = switching::checksum(packet.subspan(kIpv4AddressesAt, 8));
  const std::uint16_t sum = switching::checksum(packet.subspan(roce::kIpv4Bytes, udp_bytes),
                                                of_addresses + switching::kUdpProtocol + udp_bytes);
  wire::put_big(packet, kUdpCheckAt, sum == 0xffff ? sum : static_cast<std::uint16_t>(~sum));
}

}  // namespace netfold::rtl

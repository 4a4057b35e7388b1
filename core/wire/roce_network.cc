#include "wire/roce_network.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/bytes.h"

namespace netfold::wire::roce {
namespace {

// v1: where each field of the GRH starts.
constexpr std::size_t kVersionAt = 0, kPayloadLengthAt = 4, kNextHeaderAt = 6, kHopLimitAt = 7, kFromAt = 8, kToAt = 24;
static_assert(kToAt + sizeof(Gid) == kGrhBytes);
constexpr unsigned kIpVersion = 6;
constexpr std::byte kNextHeader{0x1b};  // InfiniBand's transport header follows

// v2: of IPv4 and UDP.
constexpr std::size_t kServiceAt = 1, kTotalAt = 2, kIdAt = 4, kFragmentAt = 6, kTimeToLiveAt = 8, kProtocolAt = 9,
                      kIpCheckAt = 10, kIpFromAt = 12, kIpToAt = 16;
constexpr std::size_t kUdpFromAt = kIpv4Bytes, kUdpToAt = kIpv4Bytes + 2, kUdpLengthAt = kIpv4Bytes + 4,
                      kUdpCheckAt = kIpv4Bytes + 6;
static_assert(kIpToAt + 4 == kIpv4Bytes && kUdpCheckAt + 2 == network_bytes(Version::kV2));
constexpr std::byte kVersionAndWords{0x45};  // version 4, five words of header: no options
constexpr std::uint16_t kDoNotFragment = 0x4000, kIsFragment = 0x3fff;
constexpr std::byte kUdpProtocol{17};
constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

constexpr std::size_t kLeastTransport = kBthBytes + kIcrcBytes;

std::uint16_t ipv4_checksum(std::span<const std::byte> header) {
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < kIpv4Bytes; at += 2) sum += get_big<std::uint16_t>(header, at);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

NetworkContent parse_v1(std::span<const std::byte> bytes, Header& header) {
  const auto first_word = get_big<std::uint32_t>(bytes, kVersionAt);
  if (first_word >> 28 != kIpVersion || bytes[kNextHeaderAt] != kNextHeader) return {ParseError::kVersion};
  const std::size_t size_bytes = kGrhBytes + get_big<std::uint16_t>(bytes, kPayloadLengthAt);
  if (size_bytes > bytes.size() || size_bytes < kGrhBytes + kLeastTransport) return {ParseError::kLength};
  header.traffic_class = static_cast<std::uint8_t>(first_word >> 20 & 0xff);
  header.flow_label = first_word & 0xfffff;
  header.hop_limit = get_big<std::uint8_t>(bytes, kHopLimitAt);
  std::memcpy(header.from.data(), bytes.data() + kFromAt, header.from.size());
  std::memcpy(header.to.data(), bytes.data() + kToAt, header.to.size());
  return {ParseError::kNone, size_bytes};
}

NetworkContent parse_v2(std::span<const std::byte> bytes, Header& header) {
  if (bytes[kVersionAt] != kVersionAndWords || bytes[kProtocolAt] != kUdpProtocol ||
      get_big<std::uint16_t>(bytes, kUdpToAt) != kUdpPort) {
    return {ParseError::kVersion};
  }
  const std::size_t size_bytes = get_big<std::uint16_t>(bytes, kTotalAt);
  if (size_bytes > bytes.size() || size_bytes < network_bytes(Version::kV2) + kLeastTransport ||
      get_big<std::uint16_t>(bytes, kUdpLengthAt) != size_bytes - kIpv4Bytes ||
      (get_big<std::uint16_t>(bytes, kFragmentAt) & kIsFragment) != 0 || ipv4_checksum(bytes) != 0) {
    return {ParseError::kLength};
  }
  header.traffic_class = get_big<std::uint8_t>(bytes, kServiceAt);
  header.hop_limit = get_big<std::uint8_t>(bytes, kTimeToLiveAt);
  header.source_port = get_big<std::uint16_t>(bytes, kUdpFromAt);
  header.flow_label = 0;
  header.from = gid_of_ipv4(get_big<std::uint32_t>(bytes, kIpFromAt));
  header.to = gid_of_ipv4(get_big<std::uint32_t>(bytes, kIpToAt));
  return {ParseError::kNone, size_bytes};
}

void emit_v2(const Header& header, std::size_t transport_bytes, std::span<std::byte> out) {
  const auto from = ipv4_of(header.from), to = ipv4_of(header.to);
  assert(from && to);
  out[kVersionAt] = kVersionAndWords;
  put_big(out, kServiceAt, header.traffic_class);
  put_big(out, kIdAt, std::uint16_t{0});
  put_big(out, kFragmentAt, kDoNotFragment);
  put_big(out, kTimeToLiveAt, header.hop_limit);
  out[kProtocolAt] = kUdpProtocol;
  put_big(out, kIpFromAt, from.value_or(0));
  put_big(out, kIpToAt, to.value_or(0));
  put_big(out, kUdpFromAt, header.source_port);
  put_big(out, kUdpToAt, kUdpPort);
  set_transport_bytes(out, Version::kV2, transport_bytes);
}

}  // namespace

NetworkContent parse_network(std::span<const std::byte> bytes, Version version, Header& header) {
  if (bytes.size() < network_bytes(version) + kLeastTransport) return {ParseError::kShort};
  header.version = version;
  header.source_port = 0;
  return version == Version::kV1 ? parse_v1(bytes, header) : parse_v2(bytes, header);
}

void emit_network(const Header& header, std::size_t transport_bytes, std::span<std::byte> out) {
  if (header.version == Version::kV2) return emit_v2(header, transport_bytes, out);
  put_big(out, kVersionAt, kIpVersion << 28 | std::uint32_t{header.traffic_class} << 20 | header.flow_label);
  put_big(out, kPayloadLengthAt, static_cast<std::uint16_t>(transport_bytes));
  out[kNextHeaderAt] = kNextHeader;
  put_big(out, kHopLimitAt, header.hop_limit);
  std::memcpy(out.data() + kFromAt, header.from.data(), header.from.size());
  std::memcpy(out.data() + kToAt, header.to.data(), header.to.size());
}

void set_transport_bytes(std::span<std::byte> packet, Version version, std::size_t transport_bytes) {
  if (version == Version::kV1) return put_big(packet, kPayloadLengthAt, static_cast<std::uint16_t>(transport_bytes));
  put_big(packet, kTotalAt, static_cast<std::uint16_t>(network_bytes(Version::kV2) + transport_bytes));
  put_big(packet, kUdpLengthAt, static_cast<std::uint16_t>(kUdpBytes + transport_bytes));
  put_big(packet, kIpCheckAt, std::uint16_t{0});
  put_big(packet, kIpCheckAt, ipv4_checksum(packet));
  put_big(packet, kUdpCheckAt, std::uint16_t{0});  // none: the ICRC covers more (annex A17)
}

void mask_network(std::span<std::byte> header, Version version) {
  if (version == Version::kV1) {
    header[kVersionAt] |= std::byte{0x0f};  // the traffic class and, below, the flow label
    header[kVersionAt + 1] = header[kVersionAt + 2] = header[kVersionAt + 3] = kAllOnes;
    header[kHopLimitAt] = kAllOnes;
    return;
  }
  header[kServiceAt] = header[kTimeToLiveAt] = kAllOnes;
  header[kIpCheckAt] = header[kIpCheckAt + 1] = header[kUdpCheckAt] = header[kUdpCheckAt + 1] = kAllOnes;
}

Gid gid_of_ipv4(std::uint32_t address) {
  Gid gid{};
  std::copy(kMapped.begin(), kMapped.end(), gid.begin());
  for (std::size_t i = 0; i < 4; ++i) gid[12 + i] = static_cast<std::uint8_t>(address >> (24 - 8 * i));
  return gid;
}

std::optional<std::uint32_t> ipv4_of(const Gid& gid) {
  if (!std::equal(kMapped.begin(), kMapped.end(), gid.begin())) return std::nullopt;
  std::uint32_t address = 0;
  for (std::size_t i = 12; i < gid.size(); ++i) address = address << 8 | gid[i];
  return address;
}

std::uint16_t source_port_of(std::uint32_t own_queue_pair, std::uint32_t peer_queue_pair) {
  std::uint64_t label = std::uint64_t{own_queue_pair} * peer_queue_pair;
  label ^= label >> 20;
  label ^= label >> 40;
  const auto low = static_cast<std::uint32_t>(label & 0x3fff), high = static_cast<std::uint32_t>(label & 0xfc000);
  return static_cast<std::uint16_t>(0xc000 | ((low ^ high >> 14) & 0x3fff));
}

}  // namespace netfold::wire::roce

#include "switch/ethernet/headers.h"

#include <array>
#include <cstring>

#include "base/names.h"

namespace netfold::switching {
namespace {

constexpr std::uint16_t kMoreFragments = 0x2000, kFragmentOffset = 0x1fff;
constexpr unsigned kAnswerTimeToLive = 64;

// Nearly all have no options: five words, no loop.
bool ipv4_checksum_is_right(std::span<const std::byte> header) {
  if (header.size() != kIpv4Bytes) return checksum(header) == 0xffff;
  std::uint64_t low, high;
  std::uint32_t last;
  std::memcpy(&low, header.data(), 8);
  std::memcpy(&high, header.data() + 8, 8);
  std::memcpy(&last, header.data() + 16, 4);
  std::uint64_t sum = (low & 0xffff'ffff) + (low >> 32) + (high & 0xffff'ffff) + (high >> 32) + last;
  sum = (sum & 0xffff'ffff) + (sum >> 32);
  sum = (sum & 0xffff'ffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

// The pseudo header's part of a UDP checksum, unfolded.
std::uint32_t pseudo_header_sum(const Ipv4& ip, std::uint32_t udp_bytes) {
  return (ip.from >> 16) + (ip.from & 0xffff) + (ip.to >> 16) + (ip.to & 0xffff) + kUdpProtocol + udp_bytes;
}

Flaw parse_udp(std::span<std::byte> datagram, const ParseOptions& options, ParsedFrame& parsed) {
  if (datagram.size() < kUdpBytes) return Flaw::kUdpLength;
  const std::size_t udp_bytes = read_u16(&datagram[4]);
  if (udp_bytes < kUdpBytes || udp_bytes > datagram.size()) return Flaw::kUdpLength;
  const std::uint16_t sum = read_u16(&datagram[6]);
  if (sum != 0 && options.check_udp && !parsed.frame.checksums_good &&
      checksum(datagram.first(udp_bytes), pseudo_header_sum(parsed.ip, static_cast<std::uint32_t>(udp_bytes))) !=
          0xffff) {
    return Flaw::kUdpChecksum;
  }
  parsed.udp = {read_u16(&datagram[0]), read_u16(&datagram[2])};
  parsed.has_udp = true;
  parsed.payload_at = static_cast<std::uint16_t>(parsed.payload_at + kUdpBytes);
  parsed.payload_bytes = static_cast<std::uint32_t>(udp_bytes - kUdpBytes);
  return Flaw::kNone;
}

Flaw parse_ipv4(const ParseOptions& options, ParsedFrame& parsed) {
  const std::span<std::byte> packet = parsed.content();
  if (packet.size() < kIpv4Bytes) return Flaw::kIpHeader;
  const auto version_and_words = static_cast<unsigned>(packet[0]);
  const std::size_t header_bytes = (version_and_words & 15) * 4;
  const std::size_t total_bytes = read_u16(&packet[2]);
  if (version_and_words >> 4 != 4 || header_bytes < kIpv4Bytes || total_bytes < header_bytes ||
      total_bytes > packet.size()) {
    return Flaw::kIpHeader;
  }
  if (!parsed.frame.checksums_good && !ipv4_checksum_is_right(packet.first(header_bytes))) return Flaw::kIpChecksum;
  if ((read_u16(&packet[6]) & (kMoreFragments | kFragmentOffset)) != 0) return Flaw::kFragment;
  parsed.ip = {read_u32(&packet[12]),
               read_u32(&packet[16]),
               static_cast<std::uint8_t>(packet[9]),
               static_cast<std::uint8_t>(packet[8]),
               static_cast<std::uint16_t>(header_bytes),
               static_cast<std::uint16_t>(total_bytes)};
  parsed.has_ip = true;
  parsed.payload_at = static_cast<std::uint16_t>(parsed.content_at + header_bytes);
  parsed.payload_bytes = static_cast<std::uint32_t>(total_bytes - header_bytes);
  if (parsed.ip.protocol != kUdpProtocol) return Flaw::kNone;
  return parse_udp(packet.subspan(header_bytes, total_bytes - header_bytes), options, parsed);
}

// A 16-bit word of an IPv4 header, and with it the checksum, which changes by the difference (RFC 1624, equation 3).
void replace_word(std::byte* ip, std::size_t at, std::uint16_t value) {
  const std::uint16_t before = read_u16(ip + at);
  if (before == value) return;
  std::uint32_t sum =
      static_cast<std::uint16_t>(~read_u16(ip + 10)) + std::uint32_t{static_cast<std::uint16_t>(~before)} + value;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  write_u16(ip + at, value);
  write_u16(ip + 10, static_cast<std::uint16_t>(~sum));
}

void write_ipv4_length(std::byte* ip, std::size_t header_bytes, std::size_t total_bytes) {
  write_u16(ip + 2, static_cast<std::uint16_t>(total_bytes));
  write_u16(ip + 10, 0);
  write_u16(ip + 10, static_cast<std::uint16_t>(~checksum({ip, header_bytes})));
}

}  // namespace

const char* name_of(Flaw flaw) {
  constexpr const char* kNames[]{"none",      "runt",        "oversize", "bad_source", "too_many_tags",
                                 "ip_header", "ip_checksum", "fragment", "udp_length", "udp_checksum"};
  return name_in(kNames, flaw);
}

// Ones' complement addition has no order and no word size: native 32-bit words are summed, and the bytes of the result
// swapped at the end (RFC 1071, section 2).
std::uint16_t checksum(std::span<const std::byte> bytes, std::uint32_t start) {
  std::uint64_t sum = 0;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 4; left -= 4, at += 4) {
    std::uint32_t word;
    std::memcpy(&word, at, 4);
    sum += word;
  }
  if (left > 0) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, left);
    sum += word;
  }
  const auto fold = [](std::uint64_t wide) {
    wide = (wide & 0xffff'ffff) + (wide >> 32);
    wide = (wide & 0xffff'ffff) + (wide >> 32);
    wide = (wide & 0xffff) + (wide >> 16);
    return static_cast<std::uint32_t>((wide & 0xffff) + (wide >> 16));
  };
  const auto native = static_cast<std::uint16_t>(fold(sum));
  return static_cast<std::uint16_t>(fold(std::uint64_t{__builtin_bswap16(native)} + start));
}

Flaw parse(const link::Frame& frame, const ParseOptions& options, ParsedFrame& parsed) {
  parsed.frame = frame;
  parsed.tags = 0;
  parsed.vlan = 0;
  parsed.has_ip = parsed.has_udp = false;
  if (frame.size_bytes < kEthernetBytes) return Flaw::kRunt;
  if (frame.size_bytes > options.frame_bytes_max) return Flaw::kOversize;
  parsed.to = MacAddress::read(frame.bytes);
  parsed.from = MacAddress::read(frame.bytes + MacAddress::kBytes);
  if (parsed.from.is_group() || parsed.from.number == 0) return Flaw::kBadSource;

  std::size_t type_at = 2 * MacAddress::kBytes;
  std::uint16_t type = read_u16(frame.bytes + type_at);
  while (type == kVlanType || type == kServiceVlanType) {
    if (parsed.tags == kTagsMax) return Flaw::kTooManyTags;
    if (frame.size_bytes < type_at + kTagBytes + 2) return Flaw::kRunt;
    if (parsed.tags++ == 0) parsed.vlan = read_u16(frame.bytes + type_at + 2) & 0xfff;
    type_at += kTagBytes;
    type = read_u16(frame.bytes + type_at);
  }
  parsed.ether_type = type;
  parsed.content_at = parsed.payload_at = static_cast<std::uint16_t>(type_at + 2);
  parsed.payload_bytes = frame.size_bytes - parsed.content_at;
  if (type != kIpv4Type) return Flaw::kNone;
  const Flaw flaw = parse_ipv4(options, parsed);
  if (flaw != Flaw::kNone) {  // no handler reads half of it
    parsed.has_ip = false;
    parsed.payload_at = parsed.content_at;
    parsed.payload_bytes = frame.size_bytes - parsed.content_at;
  }
  return flaw;
}

void write_udp_headers(const UdpFrame& fields, std::byte* at) {
  fields.to.write(at);
  fields.from.write(at + MacAddress::kBytes);
  write_u16(at + 12, kIpv4Type);
  std::byte* const ip = at + kEthernetBytes;
  std::memset(ip, 0, kIpv4Bytes + kUdpBytes);
  ip[0] = std::byte{0x45};
  write_u16(ip + 6, 0x4000);  // do not fragment
  ip[8] = static_cast<std::byte>(kAnswerTimeToLive);
  ip[9] = std::byte{kUdpProtocol};
  write_u32(ip + 12, fields.ip_from);
  write_u32(ip + 16, fields.ip_to);
  write_ipv4_length(ip, kIpv4Bytes, kIpv4Bytes + kUdpBytes + fields.payload_bytes);
  std::byte* const udp = ip + kIpv4Bytes;
  write_u16(udp, fields.udp_from);
  write_u16(udp + 2, fields.udp_to);
  write_u16(udp + 4, static_cast<std::uint16_t>(kUdpBytes + fields.payload_bytes));
}

void set_lengths(const ParsedFrame& frame, std::size_t payload_bytes) {
  std::byte* const ip = frame.frame.bytes + frame.content_at;
  replace_word(ip, 2, static_cast<std::uint16_t>(frame.ip.header_bytes + kUdpBytes + payload_bytes));
  std::byte* const udp = ip + frame.ip.header_bytes;
  write_u16(udp + 4, static_cast<std::uint16_t>(kUdpBytes + payload_bytes));
  write_u16(udp + 6, 0);
}

// Sums do not care for order, so addresses that change places leave the checksum as it is.
void turn_into_answer(const ParsedFrame& frame, std::size_t payload_bytes) {
  const auto swap = [](std::byte* one, std::byte* other, auto value) {
    auto kept = value;
    std::memcpy(&value, one, sizeof value);
    std::memcpy(&kept, other, sizeof kept);
    std::memcpy(one, &kept, sizeof kept);
    std::memcpy(other, &value, sizeof value);
  };
  std::byte* const ethernet = frame.frame.bytes;
  swap(ethernet, ethernet + MacAddress::kBytes, std::array<std::byte, MacAddress::kBytes>{});
  std::byte* const ip = ethernet + frame.content_at;
  swap(ip + 12, ip + 16, std::uint32_t{});
  swap(ip + frame.ip.header_bytes, ip + frame.ip.header_bytes + 2, std::uint16_t{});
  replace_word(ip, 8, static_cast<std::uint16_t>(kAnswerTimeToLive << 8 | kUdpProtocol));
  set_lengths(frame, payload_bytes);
}

}  // namespace netfold::switching

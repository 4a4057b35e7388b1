// The headers of a frame: Ethernet II, VLAN tags, IPv4, UDP. One reader for all protocol handlers, and the writer for
// those that make frames. The reader does not guess: `ip` and `udp` are there only if all of it is right.
//
//   | to 6 | from 6 | tags 0..2 x 4 | type 2 | IPv4 20..60 | UDP 8 | payload ... padding |
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "link/frame_port.h"
#include "switch/ethernet/mac_address.h"

namespace netfold::switching {

constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kTagBytes = 4;
constexpr std::size_t kTagsMax = 2;                         // 802.1Q, 802.1ad
constexpr std::size_t kIpv4Bytes = 20, kIpv4BytesMax = 60;  // with options
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kUdpFrameBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes;  // untagged, no options

enum EtherType : std::uint16_t {
  kIpv4Type = 0x0800,
  kArpType = 0x0806,
  kVlanType = 0x8100,
  kServiceVlanType = 0x88a8,
  kRoceType = 0x8915,  // RoCE v1
};
constexpr std::uint8_t kUdpProtocol = 17;

// The defect of a frame. The first ones end its way here; the others only mean that its IPv4 or UDP part is not read:
// it is forwarded by its addresses, as a switch does, and no protocol handler sees an `ip` or a `udp`.
enum class Flaw : std::uint8_t {
  kNone,
  kRunt,         // shorter than its own Ethernet header and tags
  kOversize,     // longer than the switch takes
  kBadSource,    // from a group address, or from none
  kTooManyTags,  // more than two
  // Forwarded, not read:
  kIpHeader,    // version, header length or total length are wrong
  kIpChecksum,  //
  kFragment,    // a part of a datagram: no protocol handler can use it
  kUdpLength,   //
  kUdpChecksum,
  kCount,
};
const char* name_of(Flaw flaw);
constexpr bool ends_here(Flaw flaw) {
  return flaw != Flaw::kNone && flaw < Flaw::kIpHeader;
}

struct Ipv4 {
  std::uint32_t from = 0, to = 0;  // host order
  std::uint8_t protocol = 0;
  std::uint8_t time_to_live = 0;
  std::uint16_t header_bytes = kIpv4Bytes;  // more with options
  std::uint16_t total_bytes = 0;
};

struct Udp {
  std::uint16_t from = 0, to = 0;
};

// A frame and where its parts are. `frame` is the received bytes, unchanged; all offsets are from its start and lie
// within it. Padding after an IPv4 datagram is not part of `payload()`.
struct ParsedFrame {
  link::Frame frame;
  MacAddress to, from;
  std::uint16_t ether_type = 0;  // behind the tags; below 1536 it is a length (802.3)
  std::uint16_t vlan = 0;        // the outer tag's id, 0: none
  std::uint8_t tags = 0;
  std::uint16_t content_at = 0;  // behind the Ethernet header and its tags
  std::uint16_t payload_at = 0;  // behind UDP if there is one, else behind IPv4, else content_at
  std::uint32_t payload_bytes = 0;
  bool has_ip = false, has_udp = false;
  Ipv4 ip;
  Udp udp;

  std::span<std::byte> payload() const { return {frame.bytes + payload_at, payload_bytes}; }
  std::span<std::byte> content() const { return frame.span().subspan(content_at); }
};

struct ParseOptions {
  std::uint32_t frame_bytes_max = 1518 + kTagsMax * kTagBytes;
  bool check_udp = true;  // the UDP checksum too, where it is not 0 and the device has not checked it
};

Flaw parse(const link::Frame& frame, const ParseOptions& options, ParsedFrame& parsed);

// Ones' complement sum over `bytes` as 16-bit numbers, folded and not yet inverted; `start` continues an earlier sum.
std::uint16_t checksum(std::span<const std::byte> bytes, std::uint32_t start = 0);

// Big-endian numbers in frames.
inline std::uint16_t read_u16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap16(value);
}
inline std::uint32_t read_u32(const std::byte* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}
inline void write_u16(std::byte* at, std::uint16_t value) {
  value = __builtin_bswap16(value);
  std::memcpy(at, &value, sizeof value);
}
inline void write_u32(std::byte* at, std::uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(at, &value, sizeof value);
}

struct UdpFrame {
  MacAddress to, from;
  std::uint32_t ip_to = 0, ip_from = 0;
  std::uint16_t udp_to = 0, udp_from = 0;
  std::size_t payload_bytes = 0;
};
// Writes kUdpFrameBytes of Ethernet, IPv4 and UDP headers (UDP checksum 0: not computed).
void write_udp_headers(const UdpFrame& fields, std::byte* at);

// Turns a received UDP frame's headers, tags and options kept, into those of an answer with `payload_bytes`: addresses
// and ports change sides, lengths and the IPv4 checksum are set, the UDP checksum is 0.
void turn_into_answer(const ParsedFrame& frame, std::size_t payload_bytes);
// Sets the lengths and checksums of UDP and IPv4 for `payload_bytes`.
void set_lengths(const ParsedFrame& frame, std::size_t payload_bytes);

}  // namespace netfold::switching

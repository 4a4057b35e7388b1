// RoCE v1 and v2: layout, sizes, parse, emit, print of the packets of a reliable connection that NetReduce uses.
//
//   v1 | Ethernet 14 (type 0x8915) | GRH 40                             | BTH 12 | RETH 16 | immediate 4 | AETH 4 |
//   v2 | Ethernet 14 (type 0x0800) | IPv4 20 | UDP 8 (to port 4791)     | BTH 12 | RETH 16 | immediate 4 | AETH 4 |
//      ... payload | pad 0..3 | ICRC 4 |
// RETH is there in Write First and Only, the immediate in Last and Only with Immediate, AETH in Acknowledge. A *packet*
// here begins with the GRH or the IPv4 header (its *network header*, wire/roce_network.h): the Ethernet header and its
// VLAN tags come before it, the FCS is the device's. Numbers are in network byte order, the ICRC is not.
// Source: InfiniBand Architecture Specification 1.2.1, volume 1, chapters 8 and 9, annexes A16 (v1) and A17 (v2);
// allreduce-switch, Fig. 6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace netfold::wire::roce {

enum class Version : std::uint8_t { kV1 = 1, kV2 = 2 };

constexpr std::uint16_t kEtherType = 0x8915, kEtherTypeV2 = 0x0800;  // v2's is IPv4's
constexpr std::uint16_t kUdpPort = 4791;                             // of v2
constexpr std::uint16_t ether_type_of(Version version) {
  return version == Version::kV1 ? kEtherType : kEtherTypeV2;
}
constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kGrhBytes = 40, kIpv4Bytes = 20, kUdpBytes = 8, kBthBytes = 12, kRethBytes = 16,
                      kImmediateBytes = 4, kAethBytes = 4;
constexpr std::size_t kIcrcBytes = 4;
constexpr std::size_t network_bytes(Version version) {
  return version == Version::kV1 ? kGrhBytes : kIpv4Bytes + kUdpBytes;
}
constexpr std::size_t kHeaderBytesMax = kGrhBytes + kBthBytes + kRethBytes + kImmediateBytes;
constexpr std::size_t kPathMtu = 1024;  // payload of every packet of a message but its last
constexpr std::size_t kPacketBytesMax = kHeaderBytesMax + kPathMtu + kIcrcBytes;
constexpr std::uint32_t kPsnMask = 0xffffff;  // packet sequence numbers are cyclic
constexpr std::uint32_t kQueuePairMask = 0xffffff;

enum class Opcode : std::uint8_t {
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kAcknowledge = 0x11,
};
bool is_write(Opcode opcode);
bool has_reth(Opcode opcode);
bool has_immediate(Opcode opcode);
bool ends_message(Opcode opcode);
// Network header, BTH and the extensions.
std::size_t header_bytes(Opcode opcode, Version version = Version::kV1);

// v2's is an IPv4 address behind ten zeros and two bytes of ones.
using Gid = std::array<std::uint8_t, 16>;

// AETH syndromes: what an acknowledgement says (9.7.5.1.2). Credits are not used: 31 stands for "no limit".
enum Syndrome : std::uint8_t {
  kAcknowledged = 0x1f,
  kSequenceError = 0x60,  // a packet is missing: the PSN is the one that is expected
  kInvalidRequest = 0x61,
  kRemoteAccessError = 0x62,
  // Our own, of a code that the specification reserves: only this packet is missing; nothing is acknowledged. Only
  // between ends that have said so.
  kPacketMissing = 0x65,
};

struct Header {
  Version version = Version::kV1;
  Gid from{}, to{};
  std::uint8_t traffic_class = 0, hop_limit = 1;
  std::uint32_t flow_label = 0;   // 20 bits; v1
  std::uint16_t source_port = 0;  // UDP's; v2
  Opcode opcode = Opcode::kWriteMiddle;
  bool is_solicited = false, wants_ack = false;
  std::uint16_t partition = 0xffff;
  std::uint32_t queue_pair = 0, psn = 0;  // the receiver's; 24 bits each
  std::uint8_t reserved = 0;              // 7 bits before the PSN: 0 from every sender
  // RETH
  std::uint64_t address = 0;
  std::uint32_t key = 0, length_bytes = 0;
  std::uint32_t immediate = 0;
  // AETH
  std::uint8_t syndrome = 0;
  std::uint32_t messages = 0;  // completed by the responder; 24 bits

  bool operator==(const Header&) const = default;
};

// Returns a name for what is wrong; kOpcode means a packet that is RoCE but of no kind known here.
enum class ParseError : std::uint8_t { kNone, kShort, kVersion, kOpcode, kLength };

struct Packet {
  Header header;
  std::size_t payload_at = 0;
  std::span<const std::byte> payload;  // without the pad
  std::span<const std::byte> packet;   // network header to ICRC; padding of the Ethernet frame is cut off
};

// Checks everything but the ICRC.
ParseError parse(std::span<const std::byte> bytes, Packet& packet, Version version = Version::kV1);
// Of a packet that has parsed.
Version version_of(std::span<const std::byte> packet);

// Of a packet from its network header on, `bytes` ending where the ICRC begins: the packet's bytes that routers may
// change count as ones, and so does the missing local routing header before them.
std::uint32_t icrc(std::span<const std::byte> bytes);
bool icrc_is_right(std::span<const std::byte> packet);
// Writes the ICRC over the last four bytes of a packet.
void seal(std::span<std::byte> packet);
// The same for a packet without extensions (Write Middle) and with kPathMtu of payload, whose CRC-32 is known.
void seal_middle(std::span<std::byte> packet, std::uint32_t payload_check);

std::size_t packet_bytes(Opcode opcode, std::size_t payload_bytes, Version version = Version::kV1);
// Writes the headers of a packet with `payload_bytes` of payload; returns how long they are. The caller writes payload
// and pad (zeros), then seals it.
std::size_t emit(const Header& header, std::size_t payload_bytes, std::span<std::byte> out);

// Addresses as 48-bit numbers.
void emit_ethernet(std::uint64_t to, std::uint64_t from, std::span<std::byte> out, Version version = Version::kV1);

std::string to_string(const Header& header);
std::string to_string(const Gid& gid);
const char* name_of(Opcode opcode);
const char* name_of(ParseError error);

}  // namespace netfold::wire::roce

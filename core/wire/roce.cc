#include "wire/roce.h"

#include <fmt/core.h>

#include <cassert>
#include <cstring>

#include "wire/bytes.h"
#include "wire/crc32.h"
#include "wire/roce_network.h"

namespace netfold::wire::roce {
namespace {

// Where each field of the BTH starts, counted from it.
constexpr std::size_t kOpcodeAt = 0, kTransportFlagsAt = 1, kPartitionAt = 2, kVariantAt = 4, kQueuePairAt = 5,
                      kAckAt = 8, kPsnAt = 9;
static_assert(kPsnAt + 3 == kBthBytes);
static_assert(kEthernetBytes + kGrhBytes + kBthBytes == 66 &&
              kEthernetBytes + kGrhBytes + kBthBytes + kRethBytes == 82);

// The CRC of eight bytes of ones: the local routing header that RoCE does not have.
constexpr std::uint32_t kMissingRoutingHeader = ~std::uint32_t{0xdebb20e3};

std::size_t pad_bytes(std::size_t payload_bytes) {
  return (4 - payload_bytes % 4) % 4;
}

bool is_known(std::uint8_t opcode) {
  const bool is_a_write = opcode >= static_cast<std::uint8_t>(Opcode::kWriteFirst) &&
                          opcode <= static_cast<std::uint8_t>(Opcode::kWriteOnlyImmediate);
  return is_a_write || opcode == static_cast<std::uint8_t>(Opcode::kAcknowledge);
}

// The CRC of a packet's network header and BTH as the ICRC sees them, behind the routing header that is missing.
// Carry-less multiplication takes 64 bytes at once, so zeros stand before them, which change nothing where there is no
// CRC yet; the one that there is counts as added to the first bytes.
std::uint32_t head_check(std::span<const std::byte> packet) {
  const Version version = version_of(packet);
  const std::size_t network = network_bytes(version), head_bytes = network + kBthBytes;
  std::array<std::byte, 64> room{};
  const auto head = std::span(room).last(head_bytes);
  std::memcpy(head.data(), packet.data(), head_bytes);
  mask_network(head, version);
  head[network + kVariantAt] = kAllOnes;
  for (std::size_t i = 0; i < sizeof kMissingRoutingHeader; ++i) {
    head[i] ^= static_cast<std::byte>(~kMissingRoutingHeader >> (8 * i) & 0xff);
  }
  constexpr std::uint32_t kNoCrcYet = ~std::uint32_t{0};
  return crc32(room, kNoCrcYet);
}

void put_icrc(std::span<std::byte> packet, std::uint32_t check) {
  for (std::size_t i = 0; i < kIcrcBytes; ++i) {
    packet[packet.size() - kIcrcBytes + i] = static_cast<std::byte>(check >> (8 * i) & 0xff);
  }
}

void parse_extensions(std::span<const std::byte> bytes, Header& header) {
  std::size_t at = network_bytes(header.version) + kBthBytes;
  if (has_reth(header.opcode)) {
    header.address = get_big<std::uint64_t>(bytes, at);
    header.key = get_big<std::uint32_t>(bytes, at + 8);
    header.length_bytes = get_big<std::uint32_t>(bytes, at + 12);
    at += kRethBytes;
  }
  if (has_immediate(header.opcode)) header.immediate = get_big<std::uint32_t>(bytes, at);
  if (header.opcode == Opcode::kAcknowledge) {
    header.syndrome = get_big<std::uint8_t>(bytes, at);
    header.messages = get_big<std::uint32_t, 3>(bytes, at + 1);
  }
}

}  // namespace

bool is_write(Opcode opcode) {
  return opcode != Opcode::kAcknowledge;
}

bool has_reth(Opcode opcode) {
  return opcode == Opcode::kWriteFirst || opcode == Opcode::kWriteOnly || opcode == Opcode::kWriteOnlyImmediate;
}

bool has_immediate(Opcode opcode) {
  return opcode == Opcode::kWriteLastImmediate || opcode == Opcode::kWriteOnlyImmediate;
}

bool ends_message(Opcode opcode) {
  return is_write(opcode) && opcode != Opcode::kWriteFirst && opcode != Opcode::kWriteMiddle;
}

std::size_t header_bytes(Opcode opcode, Version version) {
  return network_bytes(version) + kBthBytes + (has_reth(opcode) ? kRethBytes : 0) +
         (has_immediate(opcode) ? kImmediateBytes : 0) + (opcode == Opcode::kAcknowledge ? kAethBytes : 0);
}

ParseError parse(std::span<const std::byte> bytes, Packet& packet, Version version) {
  Header& header = packet.header;
  const NetworkContent content = parse_network(bytes, version, header);
  if (content.error != ParseError::kNone) return content.error;
  const std::size_t size_bytes = content.packet_bytes;
  packet.packet = bytes.first(size_bytes);
  const auto transport = bytes.subspan(network_bytes(version));
  const auto flags = static_cast<unsigned>(transport[kTransportFlagsAt]);
  if ((flags & 0xf) != 0) return ParseError::kVersion;  // of the transport header
  if (!is_known(static_cast<std::uint8_t>(transport[kOpcodeAt]))) return ParseError::kOpcode;

  header.opcode = static_cast<Opcode>(transport[kOpcodeAt]);
  packet.payload_at = header_bytes(header.opcode, version);
  const std::size_t pad = flags >> 4 & 3;
  if (size_bytes < packet.payload_at + pad + kIcrcBytes) return ParseError::kShort;
  packet.payload = bytes.subspan(packet.payload_at, size_bytes - packet.payload_at - pad - kIcrcBytes);
  if (pad_bytes(packet.payload.size()) != pad) return ParseError::kLength;

  header.is_solicited = (flags & 0x80) != 0;
  header.partition = get_big<std::uint16_t>(transport, kPartitionAt);
  header.queue_pair = get_big<std::uint32_t, 3>(transport, kQueuePairAt);
  header.wants_ack = (static_cast<unsigned>(transport[kAckAt]) & 0x80) != 0;
  header.reserved = static_cast<std::uint8_t>(static_cast<unsigned>(transport[kAckAt]) & 0x7f);
  header.psn = get_big<std::uint32_t, 3>(transport, kPsnAt);
  parse_extensions(bytes, header);
  return ParseError::kNone;
}

Version version_of(std::span<const std::byte> packet) {
  return static_cast<unsigned>(packet[0]) >> 4 == 4 ? Version::kV2 : Version::kV1;  // of IP, which the GRH is like
}

std::uint32_t icrc(std::span<const std::byte> bytes) {
  const std::size_t head_bytes = network_bytes(version_of(bytes)) + kBthBytes;
  assert(bytes.size() >= head_bytes);
  return crc32(bytes.subspan(head_bytes), head_check(bytes));
}

bool icrc_is_right(std::span<const std::byte> packet) {
  const std::uint32_t right = icrc(packet.first(packet.size() - kIcrcBytes));
  const auto there = packet.last(kIcrcBytes);
  for (std::size_t i = 0; i < kIcrcBytes; ++i) {
    if (static_cast<std::uint8_t>(there[i]) != (right >> (8 * i) & 0xff)) return false;
  }
  return true;
}

void seal(std::span<std::byte> packet) {
  put_icrc(packet, icrc(packet.first(packet.size() - kIcrcBytes)));
}

void seal_middle(std::span<std::byte> packet, std::uint32_t payload_check) {
  static const Crc32Shift shift(kPathMtu);
  assert(packet.size() == packet_bytes(Opcode::kWriteMiddle, kPathMtu, version_of(packet)));
  put_icrc(packet, shift(head_check(packet)) ^ payload_check);
}

std::size_t packet_bytes(Opcode opcode, std::size_t payload_bytes, Version version) {
  return header_bytes(opcode, version) + payload_bytes + pad_bytes(payload_bytes) + kIcrcBytes;
}

std::size_t emit(const Header& header, std::size_t payload_bytes, std::span<std::byte> out) {
  const std::size_t head_bytes = header_bytes(header.opcode, header.version);
  const std::size_t network = network_bytes(header.version);
  assert(out.size() >= head_bytes && header.psn <= kPsnMask && header.queue_pair <= kQueuePairMask &&
         header.reserved < 0x80);
  emit_network(header, packet_bytes(header.opcode, payload_bytes, header.version) - network, out);

  const auto transport = out.subspan(network);
  transport[kOpcodeAt] = static_cast<std::byte>(header.opcode);
  constexpr unsigned kMigrated = 0x40;  // the state of a connection that has one path
  transport[kTransportFlagsAt] =
      static_cast<std::byte>((header.is_solicited ? 0x80u : 0u) | kMigrated | pad_bytes(payload_bytes) << 4);
  put_big(transport, kPartitionAt, header.partition);
  put_big(transport, kVariantAt, header.queue_pair);  // the byte before the queue pair's three is reserved, and 0
  put_big(transport, kAckAt, (header.wants_ack ? 0x80000000u : 0u) | std::uint32_t{header.reserved} << 24 | header.psn);

  std::size_t at = network + kBthBytes;
  if (has_reth(header.opcode)) {
    put_big(out, at, header.address);
    put_big(out, at + 8, header.key);
    put_big(out, at + 12, header.length_bytes);
    at += kRethBytes;
  }
  if (has_immediate(header.opcode)) put_big(out, at, header.immediate);
  if (header.opcode == Opcode::kAcknowledge) {
    put_big(out, at, std::uint32_t{header.syndrome} << 24 | (header.messages & 0xffffff));
  }
  return head_bytes;
}

void emit_ethernet(std::uint64_t to, std::uint64_t from, std::span<std::byte> out, Version version) {
  put_big<std::uint64_t, 6>(out, 0, to);
  put_big<std::uint64_t, 6>(out, 6, from);
  put_big(out, 12, ether_type_of(version));
}

std::string to_string(const Header& header) {
  std::string text =
      fmt::format("{} {} -> {} qp {:#x} psn {}{}", name_of(header.opcode), to_string(header.from), to_string(header.to),
                  header.queue_pair, header.psn, header.wants_ack ? " wants an answer" : "");
  if (has_reth(header.opcode)) {
    text += fmt::format(" {} bytes to {:#x} key {:#x}", header.length_bytes, header.address, header.key);
  }
  if (has_immediate(header.opcode)) text += fmt::format(" immediate {:#x}", header.immediate);
  if (header.opcode == Opcode::kAcknowledge) {
    text += fmt::format(" syndrome {:#x} after {} messages", header.syndrome, header.messages);
  }
  return text;
}

std::string to_string(const Gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.size(); ++i) {
    text += fmt::format("{}{:02x}", i > 0 && i % 2 == 0 ? ":" : "", gid[i]);
  }
  return text;
}

const char* name_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWriteFirst: return "write first";
    case Opcode::kWriteMiddle: return "write middle";
    case Opcode::kWriteLast: return "write last";
    case Opcode::kWriteLastImmediate: return "write last with immediate";
    case Opcode::kWriteOnly: return "write only";
    case Opcode::kWriteOnlyImmediate: return "write only with immediate";
    case Opcode::kAcknowledge: return "acknowledge";
  }
  return "unknown";
}

const char* name_of(ParseError error) {
  switch (error) {
    case ParseError::kNone: return "none";
    case ParseError::kShort: return "short";
    case ParseError::kVersion: return "version";
    case ParseError::kOpcode: return "opcode";
    case ParseError::kLength: return "length";
  }
  return "unknown";
}

}  // namespace netfold::wire::roce

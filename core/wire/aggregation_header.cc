#include "wire/aggregation_header.h"

#include <fmt/core.h>

#include <algorithm>

#include "wire/bytes.h"

namespace netfold::wire::roce {
namespace {

constexpr std::size_t kMagicAt = 0, kVersionFormatAt = 2, kFlagsAt = 3, kJobAt = 4, kEpochAt = 6, kRankAt = 8,
                      kBlockAt = 10, kMantissaAt = 11, kMessageAt = 12, kLengthAt = 16;
static_assert(kLengthAt + 4 == kAggregationBytes);
static_assert(kFirstRoom == 1004 && kMessageRoom == 131052 && kWindowPackets == 512);
constexpr std::size_t kLengthMultiple = 4;                            // so no packet of a message has a pad
constexpr unsigned kOtherShift = 8, kGives = 0x80, kRankMask = 0xff;  // of `rank`, in a one-way message
static_assert(kShortBytes % kLengthMultiple == 0);

// The flag, and what it makes of the field `rank`.
void parse_way(std::uint16_t rank, AggregationHeader& header) {
  const bool is_one_way = (header.flags & kOneWay) != 0;
  header.flags &= static_cast<std::uint8_t>(~kOneWay);
  header.way = Way::kToAll;
  header.other = 0;
  header.rank = rank;
  if (!is_one_way) return;
  const unsigned other = rank >> kOtherShift;
  header.way = (other & kGives) != 0 ? Way::kFromGiver : Way::kToOwner;
  header.other = static_cast<std::uint8_t>(other & ~kGives);
  header.rank = rank & kRankMask;
}

std::uint16_t rank_field(const AggregationHeader& header) {
  if (header.way == Way::kToAll) return header.rank;
  const unsigned gives = header.way == Way::kFromGiver ? kGives : 0u;
  return static_cast<std::uint16_t>((gives | header.other) << kOtherShift | (header.rank & kRankMask));
}

AggregationError check(const AggregationHeader& header, Version version) {
  if ((header.flags & ~(kEndsTensor | kSummed)) != 0) return AggregationError::kFlags;
  if (version == Version::kV1 && header.workers != 0) return AggregationError::kFlags;
  if (header.other > kOtherMax) return AggregationError::kOther;
  if (header.format == numbers::Format::kBfp) {
    if (!numbers::is_valid({header.block, header.mantissa})) return AggregationError::kShape;
  } else if (header.block != 0 || header.mantissa != 0) {
    return AggregationError::kShape;
  }
  const bool fits = header.length_bytes > kFirstRoom && header.length_bytes <= kMessageRoom;
  return fits && header.length_bytes % kLengthMultiple == 0 ? AggregationError::kNone : AggregationError::kLength;
}

}  // namespace

std::size_t AggregationHeader::payload_bytes(std::uint32_t index) const {
  if (index == 0) return kFirstRoom;
  return std::min(kPathMtu, kAggregationBytes + length_bytes - index * kPathMtu);
}

AggregationError parse(std::span<const std::byte> payload, AggregationHeader& header, Version version) {
  if (payload.size() < kAggregationBytes) return AggregationError::kForeign;
  if (get_big<std::uint16_t>(payload, kMagicAt) != kAggregationMagic) return AggregationError::kForeign;
  const auto version_format = static_cast<unsigned>(payload[kVersionFormatAt]);
  if (version_format >> 4 != kAggregationVersion) return AggregationError::kForeign;
  if ((version_format & 0xf) > static_cast<unsigned>(numbers::Format::kBfp)) return AggregationError::kFormat;
  header.format = static_cast<numbers::Format>(version_format & 0xf);
  const auto flags_workers = static_cast<unsigned>(payload[kFlagsAt]);
  header.flags = static_cast<std::uint8_t>(flags_workers & ((1u << kWorkersShift) - 1));
  header.workers = static_cast<std::uint8_t>(flags_workers >> kWorkersShift);
  header.job = get_big<std::uint16_t>(payload, kJobAt);
  header.epoch = get_big<std::uint16_t>(payload, kEpochAt);
  parse_way(get_big<std::uint16_t>(payload, kRankAt), header);
  header.block = static_cast<std::uint8_t>(payload[kBlockAt]);
  header.mantissa = static_cast<std::uint8_t>(payload[kMantissaAt]);
  header.message = get_big<std::uint32_t>(payload, kMessageAt);
  header.length_bytes = get_big<std::uint32_t>(payload, kLengthAt);
  return check(header, version);
}

std::array<std::byte, kAggregationBytes> emit(const AggregationHeader& header) {
  std::array<std::byte, kAggregationBytes> bytes;
  put_big(std::span<std::byte>(bytes), kMagicAt, kAggregationMagic);
  bytes[kVersionFormatAt] = static_cast<std::byte>(kAggregationVersion << 4 | static_cast<unsigned>(header.format));
  const auto one_way = header.way != Way::kToAll ? unsigned{kOneWay} : 0u;
  bytes[kFlagsAt] = static_cast<std::byte>(header.workers << kWorkersShift | one_way | header.flags);
  put_big(std::span<std::byte>(bytes), kJobAt, header.job);
  put_big(std::span<std::byte>(bytes), kEpochAt, header.epoch);
  put_big(std::span<std::byte>(bytes), kRankAt, rank_field(header));
  bytes[kBlockAt] = static_cast<std::byte>(header.block);
  bytes[kMantissaAt] = static_cast<std::byte>(header.mantissa);
  put_big(std::span<std::byte>(bytes), kMessageAt, header.message);
  put_big(std::span<std::byte>(bytes), kLengthAt, header.length_bytes);
  return bytes;
}

void mark_as_sum(std::span<std::byte> packet) {
  const Version version = version_of(packet);
  const std::size_t network = network_bytes(version), behind_transport = network + kBthBytes;
  if (version == Version::kV1) {
    put_big(packet, 0, (get_big<std::uint32_t>(packet, 0) & ~std::uint32_t{0xfffff}) | kSummedFlowLabel);
  } else {
    constexpr std::size_t kReservedAt = 8, kUdpCheckAt = kIpv4Bytes + 6;
    packet[network + kReservedAt] = (packet[network + kReservedAt] & std::byte{0x80}) | std::byte{kSummedReserved};
    put_big(packet, kUdpCheckAt, std::uint16_t{0});
  }
  const auto opcode = static_cast<Opcode>(packet[network]);
  if (opcode == Opcode::kWriteFirst) {
    packet[behind_transport + kRethBytes + kFlagsAt] |= std::byte{kSummed};
  } else if (has_immediate(opcode)) {
    const std::size_t at = behind_transport + (has_reth(opcode) ? kRethBytes : 0);
    put_big(packet, at, get_big<std::uint32_t>(packet, at) | kSummedImmediate);
  }
}

bool is_marked_as_sum(const Header& header) {
  return header.version == Version::kV1 ? header.flow_label == kSummedFlowLabel : header.reserved == kSummedReserved;
}

std::string to_string(const AggregationHeader& header) {
  constexpr const char* kWays[]{"", " to rank", " from rank"};
  std::string way = kWays[static_cast<std::size_t>(header.way)];
  if (header.way != Way::kToAll) way += fmt::format(" {}", header.other);
  return fmt::format("job {} epoch {} rank {} message {} {} bytes of {}{}", header.job, header.epoch, header.rank,
                     header.message, header.length_bytes, numbers::name_of(header.format),
                     (header.flags & kEndsTensor) != 0 ? " end of tensor" : "") +
         way + ((header.flags & kSummed) != 0 ? " summed" : "");
}

const char* name_of(AggregationError error) {
  switch (error) {
    case AggregationError::kNone: return "none";
    case AggregationError::kForeign: return "foreign";
    case AggregationError::kFormat: return "format";
    case AggregationError::kFlags: return "flags";
    case AggregationError::kOther: return "other";
    case AggregationError::kShape: return "shape";
    case AggregationError::kLength: return "length";
  }
  return "unknown";
}

}  // namespace netfold::wire::roce

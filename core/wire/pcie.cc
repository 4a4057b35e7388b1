#include "wire/pcie.h"

#include <cassert>
#include <cstring>

#include "wire/bytes.h"

namespace netfold::wire::pcie {
namespace {

constexpr std::size_t kVersionKindAt = 0, kFormatAt = 1, kJobAt = 2, kEpochAt = 4, kRankAt = 6, kWorldAt = 8,
                      kSequenceAt = 10, kChunkAt = 14, kSumAddressAt = 18;
constexpr std::size_t kTypeAt = kCoverBytes, kLengthAt = kCoverBytes + 2, kRequesterAt = kCoverBytes + 4,
                      kTagAt = kCoverBytes + 6, kEnablesAt = kCoverBytes + 7, kAddressAt = kCoverBytes + 8;
static_assert(kSumAddressAt + 8 + 4 == kCoverBytes && kAddressAt + 8 == kCoverBytes + kHeaderBytes);
static_assert(kFrameBytes == 192 && kElements * 4 == kDataBytes);

constexpr unsigned kVersion = 1;
constexpr std::byte kMemoryWrite{0x60};  // four words of header, with data; type 0: memory
constexpr std::byte kAllBytes{0xff};
constexpr std::uint16_t kWords = kDataBytes / 4;

}  // namespace

ParseError parse(std::span<const std::byte> bytes, Write& write, std::span<const std::byte>& data) {
  if (bytes.size() < kPacketBytes) return ParseError::kShort;
  const auto version_kind = static_cast<unsigned>(bytes[kVersionKindAt]);
  if (version_kind >> 4 != kVersion || (version_kind & 15) > static_cast<unsigned>(Kind::kSum)) {
    return ParseError::kVersion;
  }
  write.kind = static_cast<Kind>(version_kind & 15);
  write.format = static_cast<numbers::Format>(bytes[kFormatAt]);
  if (write.format != numbers::Format::kFp32 && write.format != numbers::Format::kInt32) return ParseError::kFormat;
  write.job = get_big<std::uint16_t>(bytes, kJobAt);
  write.epoch = get_big<std::uint16_t>(bytes, kEpochAt);
  write.rank = get_big<std::uint16_t>(bytes, kRankAt);
  write.world = get_big<std::uint16_t>(bytes, kWorldAt);
  write.sequence = get_big<std::uint32_t>(bytes, kSequenceAt);
  write.chunk = get_big<std::uint32_t>(bytes, kChunkAt);
  write.sum_address = get_big<std::uint64_t>(bytes, kSumAddressAt);
  const bool is_ranked = write.kind == Kind::kSum ? write.rank == kSwitchRank : write.rank < write.world;
  if (!is_ranked || write.world == 0 || write.sum_address % 4 != 0) return ParseError::kFields;

  if (bytes[kTypeAt] != kMemoryWrite || bytes[kEnablesAt] != kAllBytes ||
      (get_big<std::uint16_t>(bytes, kLengthAt) & 0x3ff) != kWords) {
    return ParseError::kTransaction;
  }
  write.requester = get_big<std::uint16_t>(bytes, kRequesterAt);
  write.tag = get_big<std::uint8_t>(bytes, kTagAt);
  write.address = get_big<std::uint64_t>(bytes, kAddressAt);
  if (write.address % 4 != 0) return ParseError::kTransaction;
  data = bytes.subspan(kCoverBytes + kHeaderBytes, kDataBytes);
  return ParseError::kNone;
}

std::span<std::byte> emit(const Write& write, std::span<std::byte> packet) {
  assert(packet.size() >= kPacketBytes && write.address % 4 == 0 && write.sum_address % 4 == 0);
  std::memset(packet.data(), 0, kCoverBytes + kHeaderBytes);
  std::memset(packet.data() + kPacketBytes - 4, 0, 4);
  packet[kVersionKindAt] = static_cast<std::byte>(kVersion << 4 | static_cast<unsigned>(write.kind));
  packet[kFormatAt] = static_cast<std::byte>(write.format);
  put_big(packet, kJobAt, write.job);
  put_big(packet, kEpochAt, write.epoch);
  put_big(packet, kRankAt, write.rank);
  put_big(packet, kWorldAt, write.world);
  put_big(packet, kSequenceAt, write.sequence);
  put_big(packet, kChunkAt, write.chunk);
  put_big(packet, kSumAddressAt, write.sum_address);
  packet[kTypeAt] = kMemoryWrite;
  put_big(packet, kLengthAt, kWords);
  put_big(packet, kRequesterAt, write.requester);
  put_big(packet, kTagAt, write.tag);
  packet[kEnablesAt] = kAllBytes;
  put_big(packet, kAddressAt, write.address);
  return packet.subspan(kCoverBytes + kHeaderBytes, kDataBytes);
}

const char* name_of(ParseError error) {
  switch (error) {
    case ParseError::kNone: return "none";
    case ParseError::kShort: return "short";
    case ParseError::kVersion: return "version";
    case ParseError::kFormat: return "format";
    case ParseError::kFields: return "fields";
    case ParseError::kTransaction: return "transaction";
  }
  return "unknown";
}

}  // namespace netfold::wire::pcie

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
  data = data_of(bytes);
  return ParseError::kNone;
}

Pattern::Pattern(const Write& like) : world_(like.world) {
  identity_ = std::uint64_t{kVersion << 4 | static_cast<unsigned>(Kind::kWrite)} << 40 |
              std::uint64_t{static_cast<unsigned>(like.format)} << 32 | std::uint64_t{like.job} << 16 | like.epoch;
}

bool Pattern::fits(std::span<const std::byte> bytes, Place& place) const {
  // Type, length and byte enables. The bits between them may have any value.
  constexpr std::uint64_t kTransactionMask = 0xff00'03ff'0000'00ff;
  constexpr std::uint64_t kTransaction = 0x6000'0000'0000'00ff | std::uint64_t{kWords} << 32;
  static_assert(kEnablesAt == kTypeAt + 7 && kLengthAt == kTypeAt + 2);
  if (bytes.size() < kPacketBytes) return false;
  const auto identity_and_rank = get_big<std::uint64_t>(bytes, kVersionKindAt);
  place.rank = static_cast<std::uint16_t>(identity_and_rank);
  place.chunk = get_big<std::uint32_t>(bytes, kChunkAt);
  place.sum_address = get_big<std::uint64_t>(bytes, kSumAddressAt);
  const auto low_bits = static_cast<std::uint8_t>(place.sum_address | get_big<std::uint8_t>(bytes, kAddressAt + 7));
  return identity_and_rank >> 16 == identity_ && get_big<std::uint16_t>(bytes, kWorldAt) == world_ &&
         place.rank < world_ && low_bits % 4 == 0 &&
         (get_big<std::uint64_t>(bytes, kTypeAt) & kTransactionMask) == kTransaction;
}

void readdress(std::span<std::byte> packet, std::uint32_t sequence, std::uint32_t chunk, std::uint64_t address) {
  put_big(packet, kSequenceAt, sequence);
  put_big(packet, kChunkAt, chunk);
  put_big(packet, kSumAddressAt, address);
  put_big(packet, kAddressAt, address);
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

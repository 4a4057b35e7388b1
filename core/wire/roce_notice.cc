#include "wire/roce_notice.h"

#include "wire/bytes.h"

namespace netfold::wire::roce {
namespace {

constexpr std::uint16_t kMagic = 0x4e46;
constexpr unsigned kVersion = 1;
constexpr std::size_t kMagicAt = 0, kVersionKindAt = 2, kJobAt = 4, kEpochAt = 6, kRankAt = 8, kPacketAt = 10,
                      kMessageAt = 12;
static_assert(kMessageAt + 4 == kNoticeBytes);
constexpr std::size_t kEthernetBytes = 14;

}  // namespace

std::optional<Notice> parse_notice(std::span<const std::byte> bytes) {
  if (bytes.size() < kNoticeBytes || get_big<std::uint16_t>(bytes, kMagicAt) != kMagic) return std::nullopt;
  const auto version_kind = static_cast<unsigned>(bytes[kVersionKindAt]);
  if (version_kind >> 4 != kVersion || (version_kind & 15) > static_cast<unsigned>(Notice::Kind::kWorkers)) {
    return std::nullopt;
  }
  return Notice{static_cast<Notice::Kind>(version_kind & 15), get_big<std::uint16_t>(bytes, kJobAt),
                get_big<std::uint16_t>(bytes, kEpochAt),      get_big<std::uint16_t>(bytes, kRankAt),
                get_big<std::uint16_t>(bytes, kPacketAt),     get_big<std::uint32_t>(bytes, kMessageAt)};
}

std::array<std::byte, kNoticeFrameBytes> emit_frame(const Notice& notice, std::uint64_t to) {
  std::array<std::byte, kNoticeFrameBytes> frame{};
  const std::span<std::byte> bytes(frame);
  put_big<std::uint64_t, 6>(bytes, 0, to);
  put_big<std::uint64_t, 6>(bytes, 6, kSwitchAddress);
  put_big(bytes, 12, kNoticeEtherType);
  const auto content = bytes.subspan(kEthernetBytes);
  put_big(content, kMagicAt, kMagic);
  content[kVersionKindAt] = static_cast<std::byte>(kVersion << 4 | static_cast<unsigned>(notice.kind));
  put_big(content, kJobAt, notice.job);
  put_big(content, kEpochAt, notice.epoch);
  put_big(content, kRankAt, notice.rank);
  put_big(content, kPacketAt, notice.packet);
  put_big(content, kMessageAt, notice.message);
  return frame;
}

}  // namespace netfold::wire::roce

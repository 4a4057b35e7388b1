#include "wire/roce_notice.h"

#include "wire/bytes.h"
#include "wire/roce.h"

namespace netfold::wire::roce {
namespace {

constexpr std::uint16_t kNoticeMagic = 0x4e46;
constexpr unsigned kNoticeVersion = 1;
constexpr std::size_t kNoticeMagicAt = 0, kNoticeKindAt = 2, kNoticeJobAt = 4, kNoticeEpochAt = 6, kNoticeRankAt = 8,
                      kNoticePacketAt = 10, kNoticeMessageAt = 12;
static_assert(kNoticeMessageAt + 4 == kNoticeBytes);

}  // namespace

std::optional<Notice> parse_notice(std::span<const std::byte> bytes) {
  if (bytes.size() < kNoticeBytes || get_big<std::uint16_t>(bytes, kNoticeMagicAt) != kNoticeMagic) return std::nullopt;
  const auto version_kind = static_cast<unsigned>(bytes[kNoticeKindAt]);
  if (version_kind >> 4 != kNoticeVersion || (version_kind & 15) > static_cast<unsigned>(Notice::Kind::kWorkers)) {
    return std::nullopt;
  }
  return Notice{static_cast<Notice::Kind>(version_kind & 15),   get_big<std::uint16_t>(bytes, kNoticeJobAt),
                get_big<std::uint16_t>(bytes, kNoticeEpochAt),  get_big<std::uint16_t>(bytes, kNoticeRankAt),
                get_big<std::uint16_t>(bytes, kNoticePacketAt), get_big<std::uint32_t>(bytes, kNoticeMessageAt)};
}

std::array<std::byte, kNoticeFrameBytes> emit_frame(const Notice& notice, std::uint64_t to) {
  std::array<std::byte, kNoticeFrameBytes> frame{};
  const std::span<std::byte> bytes(frame);
  put_big<std::uint64_t, 6>(bytes, 0, to);
  put_big<std::uint64_t, 6>(bytes, 6, kSwitchAddress);
  put_big(bytes, 12, kNoticeEtherType);
  const auto content = bytes.subspan(kEthernetBytes);
  put_big(content, kNoticeMagicAt, kNoticeMagic);
  content[kNoticeKindAt] = static_cast<std::byte>(kNoticeVersion << 4 | static_cast<unsigned>(notice.kind));
  put_big(content, kNoticeJobAt, notice.job);
  put_big(content, kNoticeEpochAt, notice.epoch);
  put_big(content, kNoticeRankAt, notice.rank);
  put_big(content, kNoticePacketAt, notice.packet);
  put_big(content, kNoticeMessageAt, notice.message);
  return frame;
}

}  // namespace netfold::wire::roce

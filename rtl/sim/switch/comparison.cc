#include "switch/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "switch/roce_in_frame.h"
#include "wire/aggregation_header.h"
#include "wire/roce_notice.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

constexpr std::size_t kNoticeRankAt = roce::kEthernetBytes + 8;  // PROTOCOL.md
constexpr std::size_t kExamplesMax = 8, kExampleBytes = 110;

// Floats that lie in memory as they travel: the bits of the largest exponent, and a NaN.
struct Floats {
  std::size_t size_bytes;
  std::uint32_t exponent, nan;
};

std::optional<Floats> floats_of(numbers::Format format) {
  switch (format) {
    case numbers::Format::kFp32: return Floats{4, 0x7f800000, 0x7fc00000};
    case numbers::Format::kFp16: return Floats{2, 0x7c00, 0x7e00};
    case numbers::Format::kBf16: return Floats{2, 0x7f80, 0x7fc0};
    default: return std::nullopt;
  }
}

bool is_nan(std::uint32_t bits, const Floats& floats) {
  const std::uint32_t sign = 1u << (8 * floats.size_bytes - 1);
  return (bits & ~sign) > floats.exponent;
}

bool is_sum(const std::optional<RoceInFrame>& found) {
  return found && roce::is_marked_as_sum(found->packet.header);
}

bool is_waiting_notice(const Bytes& frame) {
  if (frame.size() != roce::kNoticeFrameBytes || frame[12] != std::byte{0x88} || frame[13] != std::byte{0xb5}) {
    return false;
  }
  const auto notice = roce::parse_notice(std::span(frame).subspan(roce::kEthernetBytes));
  return notice && notice->kind == roce::Notice::Kind::kWaiting;
}

std::string describe(const std::string& frame) {
  std::string text = fmt::format("{} bytes:", frame.size());
  for (std::size_t i = 0; i < std::min(frame.size(), kExampleBytes); ++i) {
    text += fmt::format("{}{:02x}", i % 8 == 0 ? " " : "", static_cast<unsigned char>(frame[i]));
  }
  return text;
}

}  // namespace

// Makes frames comparable. In sums of floats every NaN becomes the same; their ICRCs, which cover NaNs too, are checked
// and left out. In notices that a packet waits, the missing rank is left out: the hardware knows only to 5 us which
// rank was silent longest.
std::string Comparison::canonical(const Bytes& frame) const {
  std::string same(reinterpret_cast<const char*>(frame.data()), frame.size());
  if (is_waiting_notice(frame)) same.replace(kNoticeRankAt, 2, 2, '\0');
  const auto found = roce_in(frame);
  const auto floats = floats_of(format_);
  if (!floats || !is_sum(found) || !roce::icrc_is_right(found->packet.packet)) return same;
  const auto& [content, packet] = *found;
  const std::size_t skipped = roce::has_reth(packet.header.opcode) ? roce::kAggregationBytes : 0;
  const std::size_t first = content + packet.payload_at + skipped;
  const std::size_t end = content + packet.payload_at + packet.payload.size();
  for (std::size_t at = first; at + floats->size_bytes <= end; at += floats->size_bytes) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, same.data() + at, floats->size_bytes);
    if (is_nan(bits, *floats)) bits = floats->nan;
    std::memcpy(same.data() + at, &bits, floats->size_bytes);
  }
  std::memset(same.data() + content + packet.packet.size() - roce::kIcrcBytes, 0, roce::kIcrcBytes);
  return same;
}

void Comparison::entered(unsigned port, const TimedFrame& frame) {
  if (frame.is_damaged) return;
  for (const auto& [to, bytes] : software_.offer(port, frame.bytes, frame.last)) {
    sums_ += is_sum(roce_in(bytes)) ? 1 : 0;
    ++owed_[to][canonical(bytes)];
    ++owed_frames_;
  }
}

void Comparison::left(unsigned port, const TimedFrame& frame) {
  if (frame.is_damaged) {
    ++damaged_;
    return;
  }
  const std::string same = canonical(frame.bytes);
  const auto found = owed_[port].find(same);
  if (found == owed_[port].end()) return differ("not the software's, out of", port, same);
  if (--found->second == 0) owed_[port].erase(found);
  --owed_frames_;
  ++compared_;
}

void Comparison::differ(const char* what, unsigned port, const std::string& frame) {
  ++differences_;
  if (examples_.size() < kExamplesMax) examples_.push_back(fmt::format("{} port {}: {}", what, port, describe(frame)));
}

std::uint64_t Comparison::close() {
  for (unsigned port = 0; port < owed_.size(); ++port) {
    for (const auto& [frame, times] : owed_[port]) {
      for (int i = 0; i < times; ++i) differ("never came out of", port, frame);
    }
    owed_[port].clear();
  }
  owed_frames_ = 0;
  return differences_;
}

nlohmann::json Comparison::to_json() const {
  return {{"compared", compared_},
          {"sums", sums_},
          {"differences", differences_},
          {"damaged", damaged_},
          {"examples", examples_}};
}

}  // namespace netfold::rtl

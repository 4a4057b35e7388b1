#include "wire/path_probe.h"

#include <algorithm>

#include "wire/bytes.h"

namespace netfold::wire {
namespace {

constexpr std::uint32_t kMark = 0x4e465031;  // its first half-byte is the version of no data packet
constexpr std::size_t kNonceAt = 4, kNumberAt = 20;

}  // namespace

PathProbeHead emit(const PathProbe& probe) {
  PathProbeHead head{};
  put_big(std::span<std::byte>(head), 0, kMark);
  std::ranges::copy(probe.nonce, head.begin() + kNonceAt);
  put_big(std::span<std::byte>(head), kNumberAt, probe.number);
  return head;
}

std::optional<PathProbe> read_path_probe(std::span<const std::byte> bytes) {
  if (bytes.size() < PathProbe::kHeadBytes || get_big<std::uint32_t>(bytes, 0) != kMark) return std::nullopt;
  PathProbe probe{.number = get_big<std::uint32_t>(bytes, kNumberAt)};
  std::copy_n(bytes.begin() + kNonceAt, probe.nonce.size(), probe.nonce.begin());
  return probe;
}

}  // namespace netfold::wire

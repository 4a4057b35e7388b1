#include "link/tcp/stripes.h"

#include <algorithm>

namespace netfold::link {
namespace {

// The kernel counts busy time in ticks of 1 to 10 ms. A short burst tells more about the round trip than the rate.
constexpr Nanoseconds kBusyMin = 20 * kMillisecond;
constexpr std::uint64_t kConfirmedMin = std::uint64_t{4} * kStripeBytesMax;
constexpr double kNewPart = 0.5;  // of the estimate

}  // namespace

void Arrivals::add(Range range) {
  if (range.to <= whole_ || range.is_empty()) return;
  auto next = beyond_.lower_bound(range.from);
  if (next != beyond_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= range.from) {
      range = {before->first, std::max(before->second, range.to)};
      beyond_.erase(before);
    }
  }
  while (next != beyond_.end() && next->first <= range.to) {
    range.to = std::max(range.to, next->second);
    next = beyond_.erase(next);
  }
  if (range.from <= whole_) {
    whole_ = range.to;
  } else {
    beyond_.emplace(range.from, range.to);
  }
}

void Speed::note(std::uint64_t confirmed_bytes, Nanoseconds busy) {
  if (!since_) since_ = Counts{confirmed_bytes, busy};
  const std::uint64_t bytes = confirmed_bytes - since_->confirmed_bytes;
  const Nanoseconds time = busy - since_->busy;
  if (bytes < kConfirmedMin || time < kBusyMin) return;
  const double measured = static_cast<double>(bytes) / to_seconds(time);
  bytes_s_ = bytes_s_ == 0 ? measured : kNewPart * measured + (1 - kNewPart) * bytes_s_;
  since_ = Counts{confirmed_bytes, busy};
}

std::size_t earliest(std::span<const Way> ways, std::uint64_t size) {
  const bool are_known = std::ranges::all_of(ways, [](const Way& each) { return each.bytes_s > 0; });
  const auto ends_after = [&](const Way& way) {
    return static_cast<double>(way.queued_bytes + size) / (are_known ? way.bytes_s : 1.0);
  };
  const auto first = std::ranges::min_element(ways, {}, ends_after);
  return static_cast<std::size_t>(first - ways.begin());
}

}  // namespace netfold::link

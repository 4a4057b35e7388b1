#include "switch/aggregation/psn_window.h"

#include <cassert>

namespace netfold::switching {

using wire::roce::kPsnMask;

std::uint32_t PsnWindow::open(std::uint32_t psn, std::uint32_t packets) {
  const std::uint32_t column = next_;
  reopen(column, psn, packets);
  next_ = (next_ + 1) % kColumns;
  return column * kColumnPackets;
}

void PsnWindow::reopen(std::uint32_t column, std::uint32_t psn, std::uint32_t packets) {
  assert(psn <= kPsnMask && packets > 0 && packets <= kColumnPackets);
  bases_[column] = psn;
  packets_[column] = packets;
}

void PsnWindow::forget_bases() {
  bases_.fill(kNoBase);
}

std::optional<std::uint32_t> PsnWindow::place_of(std::uint32_t psn) const {
  for (std::uint32_t back = 1; back <= kColumns; ++back) {  // p3, p2, p1, p0
    const std::uint32_t column = (next_ + kColumns - back) % kColumns;
    if (bases_[column] > kPsnMask) continue;
    const std::uint32_t distance = (psn - bases_[column]) & kPsnMask;
    if (distance < packets_[column]) return column * kColumnPackets + distance;
  }
  return std::nullopt;
}

}  // namespace netfold::switching

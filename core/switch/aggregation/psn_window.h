// Which buffer a RoCE packet belongs in, found from only its sequence number: four floating base pointers over 512
// places.
//
// Words. A *column* is 128 places, one a packet of a message. The pointers p0 to p3 stand for the columns, p0 for the
// one that the next message opens, p3 for the newest; at each Write First all move on by a column, cyclically. A
// column's *base* is the PSN of its Write First; bit 24 is set while it has no base, which makes it larger than any
// PSN.
//
// A packet's PSN is compared with the bases of p3, p2, p1, p0 in this order, and lies in the first column whose message
// covers it. A message that is shorter than its column must not catch packets of the next one. Distances are taken
// modulo 2^24, so messages may cross the wrap. Source: allreduce-switch, section IV-C2 and Fig. 13. The paper compares
// by size and takes p3 where the PSN is smaller than all bases; that finds the same place, but loses packets of a
// message that crossed the wrap once a newer one has begun.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "wire/aggregation_header.h"

namespace netfold::switching {

class PsnWindow {
 public:
  static constexpr std::uint32_t kNoBase = 0x1ffffff;  // 25 bits
  static constexpr std::uint32_t kColumns = wire::roce::kWindowMessages;
  static constexpr std::uint32_t kColumnPackets = wire::roce::kMessagePackets;

  // A Write First with this PSN begins a message of `packets` packets; returns its place, a multiple of 128.
  std::uint32_t open(std::uint32_t psn, std::uint32_t packets);
  // A message that has a column already goes on under new sequence numbers.
  void reopen(std::uint32_t column, std::uint32_t psn, std::uint32_t packets);
  // No packet has a place until its message is opened again. The pointers stay.
  void forget_bases();

  std::optional<std::uint32_t> place_of(std::uint32_t psn) const;
  std::uint32_t base(std::uint32_t column) const { return bases_[column]; }
  std::uint32_t next_column() const { return next_; }  // what p0 points to

 private:
  std::array<std::uint32_t, kColumns> bases_{kNoBase, kNoBase, kNoBase, kNoBase};
  std::array<std::uint32_t, kColumns> packets_{};
  std::uint32_t next_ = 0;
};

}  // namespace netfold::switching

// One-way messages at the switch and at a receiver, frame by frame: which frames are full and which are short, what is
// refused, and what a repetition is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "group/via_roce/roce_receiver.h"
#include "protocol/roce_world.h"
#include "support/random_seed.h"
#include "switch/ethernet/memory_switch.h"
#include "wire/bytes.h"

namespace netfold::tests {
namespace {

namespace roce = wire::roce;
using group::QpInfo;
using roce::AggregationHeader;
using roce::Version;
using roce::Way;
using switching::RoceVerdict;
using Bytes = std::vector<std::byte>;

constexpr std::uint16_t kRingWorld = 3;
constexpr std::uint32_t kPackets = 3, kLength = 2 * 1024 + 100 - roce::kAggregationBytes;

// Ranks in a ring at the ports of a switch. Rank r is at port kRingWorld - 1 - r: the ranks decide, and not the ports.
class Ring {
 public:
  explicit Ring(Version version)
      : version_(version), switch_(kRingWorld, {.roce = switching::RoceOptions{.age_max = kSecond}}) {
    switch_.settings().adds_floats = true;
  }

  static link::PortNumber port_of(unsigned rank) { return static_cast<link::PortNumber>(kRingWorld - 1 - rank); }
  static unsigned right_of(unsigned rank) { return (rank + 1) % kRingWorld; }

  AggregationHeader header(unsigned rank, Way way, unsigned other, std::uint32_t message = 0) const {
    AggregationHeader header{.format = numbers::Format::kFp32, .way = way, .message = message, .length_bytes = kLength};
    header.rank = static_cast<std::uint16_t>(rank);
    header.other = static_cast<std::uint8_t>(other);
    if (version_ == Version::kV2) header.workers = kRingWorld;
    return header;
  }
  Bytes frame(const AggregationHeader& header, std::uint32_t index, std::byte fill, bool is_short) const {
    return message_frame(end_of(header.rank), end_of(right_of(header.rank)), header, index + 1, fill, is_short);
  }
  // As the header says that it must be.
  Bytes frame(const AggregationHeader& header, std::uint32_t index, std::byte fill) const {
    return frame(header, index, fill, !header.is_full_from(header.rank));
  }
  switching::MemorySwitch::Sent offer(unsigned rank, const Bytes& frame, Nanoseconds now = kSecond) {
    return switch_.offer(port_of(rank), frame, now);
  }
  std::uint64_t count(RoceVerdict verdict) const {
    const switching::SwitchThread& thread = switch_.thread();
    return (version_ == Version::kV1 ? thread.roce : thread.roce_v2)->count(verdict);
  }
  // Makes the addresses of all ranks known.
  void meet() {
    for (unsigned rank = 0; rank < kRingWorld; ++rank) {
      Bytes hello(60);
      roce::emit_ethernet(end_of(right_of(rank)).mac, end_of(rank).mac, hello, version_);
      hello[12] = hello[13] = std::byte{0x88};  // no protocol of this switch
      offer(rank, hello);
    }
  }
  QpInfo end_of(unsigned rank) const {
    QpInfo end{.version = version_, .mac = 0x020000000001u + rank, .queue_pair = 0x100 + rank};
    end.gid = roce::gid_of_ipv4(0x0a000001u + rank);
    end.first_psn = 0xfffffe + rank;
    end.first_psn &= roce::kPsnMask;
    return end;
  }
  Version version() const { return version_; }
  link::MemoryPool& pool() { return switch_.pool(); }

 private:
  Version version_;
  switching::MemorySwitch switch_;
};

struct Left {
  unsigned rank;  // that the frame goes to
  roce::Packet packet;
  Bytes gradients;
};

// Reads frames that left, notices apart; each must be right in every length and check, and marked as a sum.
std::vector<Left> read(const Ring& ring, const switching::MemorySwitch::Sent& sent) {
  std::vector<Left> all;
  for (const auto& [port, bytes] : sent) {
    if (wire::get_big<std::uint16_t>(std::span(bytes), 12) == roce::kNoticeEtherType) continue;
    Left left{kRingWorld - 1u - port, {}, {}};
    EXPECT_EQ(roce::parse(std::span(bytes).subspan(roce::kEthernetBytes), left.packet, ring.version()),
              roce::ParseError::kNone);
    EXPECT_EQ(left.packet.packet.size(), bytes.size() - roce::kEthernetBytes) << "no padding";
    EXPECT_TRUE(roce::icrc_is_right(left.packet.packet));
    EXPECT_TRUE(roce::is_marked_as_sum(left.packet.header));
    const bool is_first = left.packet.header.opcode == roce::Opcode::kWriteFirst;
    const auto gradients = left.packet.payload.subspan(is_first ? roce::kAggregationBytes : 0);
    left.gradients.assign(gradients.begin(), gradients.end());
    left.packet.payload = left.packet.packet = {};  // of `sent`
    all.push_back(left);
  }
  std::ranges::sort(all, {}, &Left::rank);
  return all;
}

class RoceOneWayFrames : public ::testing::TestWithParam<Version> {};
INSTANTIATE_TEST_SUITE_P(Versions, RoceOneWayFrames, ::testing::Values(Version::kV1, Version::kV2),
                         [](const auto& version) { return version.param == Version::kV1 ? "V1" : "V2"; });

Bytes sum_of(std::size_t size_bytes, std::initializer_list<float> values) {
  float sum = 0;
  for (const float value : values) sum += value;
  Bytes bytes(size_bytes);
  for (std::size_t at = 0; at < size_bytes; at += 4) std::memcpy(bytes.data() + at, &sum, 4);
  return bytes;
}

// Fills of which four bytes are floats: 0x3f3f3f3f, 0x40404040, 0x41414141.
constexpr std::byte fill_of(unsigned rank) {
  return static_cast<std::byte>(0x3f + rank);
}
float value_of(unsigned rank) {
  float value;
  std::memset(&value, static_cast<int>(fill_of(rank)), sizeof value);
  return value;
}

TEST_P(RoceOneWayFrames, TheOwnersFrameCarriesTheSumAndTheOthersAreShort) {
  for (unsigned owner = 0; owner < kRingWorld; ++owner) {
    Ring ring(GetParam());
    ring.meet();
    for (std::uint32_t index = 0; index < kPackets; ++index) {
      const std::size_t full = ring.header(0, Way::kToOwner, owner).payload_bytes(index);
      const auto frame_of = [&](unsigned rank) {
        return ring.frame(ring.header(rank, Way::kToOwner, owner), index, fill_of(rank));
      };
      const auto expect = [&](const Left& left) {
        EXPECT_EQ(left.packet.header.psn,
                  (ring.end_of((left.rank + kRingWorld - 1) % kRingWorld).first_psn + index) & 0xffffff);
        const auto sum = sum_of(full, {value_of(0), value_of(1), value_of(2)});
        EXPECT_EQ(left.gradients, left.rank == owner ? sum : Bytes(roce::kShortBytes)) << left.rank << " " << index;
      };
      EXPECT_TRUE(ring.offer(1, frame_of(1)).empty());
      EXPECT_TRUE(ring.offer(0, frame_of(0)).empty());
      const auto sent = read(ring, ring.offer(2, frame_of(2)));
      ASSERT_EQ(sent.size(), kRingWorld);
      for (const Left& left : sent) expect(left);
      for (unsigned rank = 0; rank < kRingWorld; ++rank) {  // again
        const auto answer = read(ring, ring.offer(rank, frame_of(rank)));
        ASSERT_EQ(answer.size(), 1u);
        EXPECT_EQ(answer[0].rank, Ring::right_of(rank));
        expect(answer[0]);
      }
    }
    EXPECT_EQ(ring.count(RoceVerdict::kFolded), kPackets);
    EXPECT_EQ(ring.count(RoceVerdict::kAnswered), kPackets * kRingWorld);
    EXPECT_EQ(ring.pool().in_use(), 0u);
  }
}

TEST_P(RoceOneWayFrames, TheGiversBytesGoToAllOthersAndAreNotAddedToAnything) {
  for (unsigned giver = 0; giver < kRingWorld; ++giver) {
    Ring ring(GetParam());
    ring.meet();
    for (std::uint32_t index = 0; index < kPackets; ++index) {
      const std::size_t full = ring.header(0, Way::kFromGiver, giver).payload_bytes(index);
      constexpr std::byte kNan{0xff};
      const auto frame_of = [&](unsigned rank) {
        return ring.frame(ring.header(rank, Way::kFromGiver, giver), index, kNan);
      };
      EXPECT_GE(frame_of((giver + 1) % kRingWorld).size(), 60u);
      EXPECT_LE(frame_of((giver + 1) % kRingWorld).size(), 110u);
      const auto expect = [&](const Left& left) {
        EXPECT_EQ(left.gradients, left.rank == giver ? Bytes(roce::kShortBytes) : Bytes(full, kNan));
      };
      EXPECT_TRUE(ring.offer(2, frame_of(2)).empty());
      EXPECT_TRUE(ring.offer(1, frame_of(1)).empty());
      const auto sent = read(ring, ring.offer(0, frame_of(0)));
      ASSERT_EQ(sent.size(), kRingWorld);
      for (const Left& left : sent) expect(left);
      for (unsigned rank = 0; rank < kRingWorld; ++rank) {
        const auto answer = read(ring, ring.offer(rank, frame_of(rank)));
        ASSERT_EQ(answer.size(), 1u);
        expect(answer[0]);
      }
    }
    EXPECT_EQ(ring.pool().in_use(), 0u);
  }
}

TEST_P(RoceOneWayFrames, WhatIsFullOrShortWhereItMustNotBeIsDropped) {
  Ring ring(GetParam());
  ring.meet();
  const AggregationHeader scatter = ring.header(0, Way::kToOwner, 1), copy = ring.header(0, Way::kFromGiver, 1);
  const AggregationHeader given = ring.header(0, Way::kFromGiver, 0), all = ring.header(0, Way::kToAll, 0);
  for (const auto& [header, is_short] : {std::pair{scatter, true}, {copy, false}, {given, true}, {all, true}}) {
    ring.offer(0, ring.frame(header, 0, fill_of(0), is_short));
  }
  EXPECT_EQ(ring.count(RoceVerdict::kBadHeader), 4u);
  for (const Way way : {Way::kToOwner, Way::kFromGiver}) {
    ring.offer(0, ring.frame(ring.header(0, way, kRingWorld), 0, fill_of(0)));
  }
  EXPECT_EQ(ring.count(RoceVerdict::kBadHeader), 6u);
  ring.offer(0, ring.frame(scatter, 0, fill_of(0)));
  EXPECT_EQ(ring.count(RoceVerdict::kKept), 1u);
  ring.offer(0, ring.frame(scatter, 1, fill_of(0), true));
  ring.offer(0, ring.frame(scatter, 2, fill_of(0), true));
  EXPECT_EQ(ring.count(RoceVerdict::kBadShape), 2u);
  const AggregationHeader next = ring.header(1, Way::kToOwner, 1);
  ring.offer(1, ring.frame(next, 0, fill_of(1)));
  ring.offer(1, ring.frame(next, 2, fill_of(1), true));
  EXPECT_EQ(ring.count(RoceVerdict::kBadShape), 3u);
  EXPECT_EQ(ring.count(RoceVerdict::kKept), 2u);
}

TEST_P(RoceOneWayFrames, AnotherWayOrAnotherPartyIsAMismatch) {
  const auto expect_mismatch = [&](Way a, unsigned a_other, Way b, unsigned b_other) {
    Ring ring(GetParam());
    ring.meet();
    EXPECT_TRUE(ring.offer(0, ring.frame(ring.header(0, a, a_other), 0, fill_of(0))).empty());
    const auto notices = ring.offer(1, ring.frame(ring.header(1, b, b_other), 0, fill_of(1)));
    ASSERT_EQ(notices.size(), 1u);
    const auto notice = roce::parse_notice(std::span(notices[0].second).subspan(roce::kEthernetBytes));
    ASSERT_TRUE(notice.has_value());
    EXPECT_EQ(notice->kind, roce::Notice::Kind::kMismatch);
    EXPECT_EQ(notice->rank, 0);
    EXPECT_EQ(ring.count(RoceVerdict::kMismatch), 1u);
  };
  expect_mismatch(Way::kToOwner, 0, Way::kToOwner, 1);
  expect_mismatch(Way::kToOwner, 0, Way::kFromGiver, 0);
  expect_mismatch(Way::kFromGiver, 0, Way::kFromGiver, 1);
  expect_mismatch(Way::kFromGiver, 2, Way::kToAll, 0);
  expect_mismatch(Way::kToAll, 0, Way::kToOwner, 2);
}

// The switch checks the blocks of the giver. A short packet has no blocks.
TEST_P(RoceOneWayFrames, OnlyTheGiversBlocksAreChecked) {
  for (const bool is_malformed : {false, true}) {
    Ring ring(GetParam());
    ring.meet();
    const auto frame_of = [&](unsigned rank, std::byte fill) {
      AggregationHeader header = ring.header(rank, Way::kFromGiver, 0);
      header.format = numbers::Format::kBfp;
      header.block = 16;
      header.mantissa = 7;
      return ring.frame(header, 0, fill);
    };
    constexpr std::byte kTooSmall{1}, kRight{0x40};  // exponents below the mantissa's width are malformed
    ring.offer(0, frame_of(0, is_malformed ? kTooSmall : kRight));
    EXPECT_EQ(ring.count(RoceVerdict::kMalformedBlock), is_malformed ? 1u : 0u);
    ring.offer(1, frame_of(1, kTooSmall));
    EXPECT_EQ(ring.count(RoceVerdict::kKept), is_malformed ? 1u : 2u);
  }
}

// Frames of one-way messages arrive lost, doubled and in any order; a place is never folded twice, and every frame that
// leaves is right.
TEST_P(RoceOneWayFrames, AreRightInAnyOrder) {
  for (const std::uint64_t seed : random_seeds(40)) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    Prng prng(seed);
    Ring ring(GetParam());
    ring.meet();
    std::uint64_t left = 0;
    for (std::uint32_t message = 0; message < 6; ++message) {
      const Way way = prng.chance(0.5) ? Way::kToOwner : Way::kFromGiver;
      const auto other = static_cast<unsigned>(prng.below(kRingWorld));
      std::uint32_t missing = kRingWorld * kPackets;
      std::array<std::array<bool, kPackets>, kRingWorld> is_in{};
      while (missing > 0) {
        const auto rank = static_cast<unsigned>(prng.below(kRingWorld));
        const auto index = static_cast<std::uint32_t>(prng.below(kPackets));
        if (index > 0 && !is_in[rank][0]) continue;  // it would have no place
        const AggregationHeader header = ring.header(rank, way, other, message);
        // The PSNs of a message follow those of the one before.
        QpInfo self = ring.end_of(rank);
        self.first_psn = (self.first_psn + message * kPackets) & roce::kPsnMask;
        const Bytes frame = message_frame(self, ring.end_of(Ring::right_of(rank)), header, index + 1, fill_of(rank),
                                          !header.is_full_from(rank));
        for (const Left& out : read(ring, ring.offer(rank, frame))) {
          ++left;
          const std::size_t full = header.payload_bytes(index);
          const bool is_full = header.is_full_to(out.rank);
          ASSERT_EQ(out.gradients.size(), is_full ? full : roce::kShortBytes);
          if (!is_full) continue;
          const auto right = way == Way::kToOwner ? sum_of(full, {value_of(0), value_of(1), value_of(2)})
                                                  : Bytes(full, fill_of(other));
          ASSERT_EQ(out.gradients, right);
        }
        if (!std::exchange(is_in[rank][index], true)) --missing;
      }
    }
    EXPECT_EQ(ring.count(RoceVerdict::kFolded), 6u * kPackets);
    EXPECT_EQ(left, ring.count(RoceVerdict::kFolded) * kRingWorld + ring.count(RoceVerdict::kAnswered));
    EXPECT_EQ(ring.pool().in_use(), 0u);
  }
}

// A sum as the switch forwards it.
Bytes marked(Bytes frame) {
  const auto packet = std::span(frame).subspan(roce::kEthernetBytes);
  roce::mark_as_sum(packet);
  roce::seal(packet);
  return frame;
}

// Short and full packets of one message do not mix at a receiver, and nothing is written outside a message's room.
TEST_P(RoceOneWayFrames, AReceiverTakesAMessageAsItsFirstPacketIs) {
  for (const std::uint64_t seed : random_seeds(200)) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    Prng prng(seed);
    const Ring ring(GetParam());
    QpInfo self = ring.end_of(1), peer = ring.end_of(0);
    self.is_selective = peer.is_selective = true;
    constexpr std::byte kUntouched{0xaa}, kFill{0x11};
    Bytes memory(group::kWindowBytes, kUntouched);
    group::RoceReceiver receiver(self, peer, memory);
    bool is_short = false;
    std::array<bool, kPackets> is_here{};
    for (int sent = 0; sent < 40; ++sent) {
      const auto index = static_cast<std::uint32_t>(prng.below(kPackets));
      const bool as_short = prng.chance(0.5);
      const Bytes frame = marked(ring.frame(ring.header(0, Way::kToOwner, 2), index, kFill, as_short));
      roce::Packet packet;
      ASSERT_EQ(roce::parse(std::span(frame).subspan(roce::kEthernetBytes), packet, ring.version()),
                roce::ParseError::kNone);
      const std::uint64_t refused = receiver.stats().refused;
      receiver.on_packet(packet);
      if (index == 0 && !is_here[0]) is_short = as_short;
      const bool is_wrong = is_here[0] && !is_here[index] && as_short != is_short;
      EXPECT_EQ(receiver.stats().refused, refused + (is_wrong ? 1 : 0));
      if (is_wrong || (index > 0 && !is_here[0])) continue;
      is_here[index] = true;
    }
    EXPECT_EQ(receiver.messages(), std::ranges::all_of(is_here, std::identity()) ? 1u : 0u);
    const std::size_t message_bytes = roce::kAggregationBytes + kLength;
    const std::size_t written = is_short ? roce::kAggregationBytes + roce::kShortBytes : message_bytes;
    EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(written), memory.end(),
                            [](std::byte byte) { return byte == kUntouched; }));
    group::RoceReceiver::Completed completed;
    while (receiver.take(completed)) EXPECT_EQ(completed.size_bytes, written);
  }
}

}  // namespace
}  // namespace netfold::tests

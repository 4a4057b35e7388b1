#include "wire/packet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"

namespace netfold::wire {
namespace {

Header contribution() {
  return {.kind = Kind::kContribution,
          .format = numbers::Format::kFp32,
          .flags = kLast,
          .job = 0x1234,
          .worker = 0x9abc,
          .epoch = 0x5678,
          .slot = 0x0def,
          .count = 2,
          .chunk = 0x01234def};
}

std::vector<std::byte> packet_of(const Header& header, std::size_t payload_bytes) {
  const HeaderBytes head = emit(header);
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.resize(bytes.size() + payload_bytes, std::byte{0x55});
  return bytes;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(byte) & 0xf];
  }
  return text;
}

TEST(Packet, HasTheBytesOfTheDiagram) {
  EXPECT_EQ(hex(emit(contribution())), "1012123456789abc0def000201234def");
}

TEST(Packet, ReadsWhatItWrites) {
  for (const Header& header :
       {contribution(),
        Header{.kind = Kind::kResult, .format = numbers::Format::kBfp, .worker = kSwitchWorker, .count = 9}}) {
    Packet packet;
    const auto bytes = packet_of(header, 8);
    ASSERT_EQ(parse(bytes, packet), ParseError::kNone);
    EXPECT_EQ(packet.header, header);
    EXPECT_EQ(packet.payload.size(), 8u);
    EXPECT_TRUE(packet.tag.empty());
  }
  for (const Kind kind : {Kind::kProbe, Kind::kMissing, Kind::kWaiting}) {
    Packet packet;
    ASSERT_EQ(parse(packet_of({.kind = kind, .chunk = 7}, 0), packet), ParseError::kNone);
    EXPECT_EQ(packet.header.kind, kind);
  }
}

TEST(Packet, SplitsTheTagOff) {
  Header header = contribution();
  header.flags |= kTagged;
  Packet packet;
  ASSERT_EQ(parse(packet_of(header, 8 + kTagBytes), packet), ParseError::kNone);
  EXPECT_EQ(packet.payload.size(), 8u);
  EXPECT_EQ(packet.tag.size(), kTagBytes);
}

TEST(Packet, NamesWhatIsWrong) {
  const auto error_of = [](std::vector<std::byte> bytes) {
    Packet packet;
    return parse(bytes, packet);
  };
  EXPECT_EQ(error_of({}), ParseError::kShort);
  EXPECT_EQ(error_of(std::vector<std::byte>(15)), ParseError::kShort);
  const auto good = packet_of(contribution(), 8);
  const auto with = [&](std::size_t at, unsigned value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_EQ(error_of(with(0, 0x20)), ParseError::kVersion);
  EXPECT_EQ(error_of(with(0, 0x1c)), ParseError::kKind);
  EXPECT_EQ(error_of(with(1, 0x60)), ParseError::kFormat);
  EXPECT_EQ(error_of(with(1, 0x00)), ParseError::kFormat) << "elements without a format";
  EXPECT_EQ(error_of(with(1, 0x14)), ParseError::kNone);
  EXPECT_EQ(error_of(with(1, 0x18)), ParseError::kNone) << "a partial sum";
  EXPECT_EQ(error_of(with(11, 0)), ParseError::kLength) << "no elements";
  EXPECT_EQ(error_of(packet_of(contribution(), 0)), ParseError::kLength) << "no payload";
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe}, 1)), ParseError::kLength) << "a probe with a payload";
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe, .flags = kLast}, 0)), ParseError::kFlags);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe, .flags = kAverage}, 0)), ParseError::kFlags);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe, .count = 1}, 0)), ParseError::kNone);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kEcho, .count = 1}, 0)), ParseError::kNone);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kWaiting, .count = 1}, 0)), ParseError::kNone);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kMissing, .count = 1}, 0)), ParseError::kLength);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe, .flags = kPartial}, 0)), ParseError::kFlags);
  EXPECT_EQ(
      error_of(packet_of({.kind = Kind::kResult, .format = numbers::Format::kFp16, .flags = kPartial, .count = 2}, 8)),
      ParseError::kFlags);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kCopy, .flags = kLast, .count = 8}, 8)), ParseError::kNone);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kCopy, .count = 8}, 0)), ParseError::kNone) << "another rank's bytes";
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kCopy, .count = 8}, 7)), ParseError::kLength);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kCopy, .flags = kAverage, .count = 8}, 8)), ParseError::kFlags);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kCopied, .count = 8}, 0)), ParseError::kLength);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kCopied}, 0)), ParseError::kLength);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kDone, .count = 1}, 0)), ParseError::kLength);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kScatter, .count = 2}, 8)), ParseError::kFormat);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe, .format = numbers::Format::kFp32}, 0)), ParseError::kFormat);
  EXPECT_EQ(error_of(packet_of({.kind = Kind::kProbe, .flags = kTagged}, 15)), ParseError::kShort) << "a cut tag";
}

TEST(Packet, OwnerStandsWhereOthersHaveTheSlot) {
  const Header scatter{
      .kind = Kind::kScatter, .format = numbers::Format::kFp32, .worker = 1, .count = 2, .chunk = 5, .owner = 0x123};
  const auto bytes = packet_of(scatter, 8);
  EXPECT_EQ(bytes[8], std::byte{0x01});
  EXPECT_EQ(bytes[9], std::byte{0x23});
  Packet packet;
  ASSERT_EQ(parse(bytes, packet), ParseError::kNone);
  EXPECT_EQ(packet.header, scatter);
}

TEST(Packet, PayloadLengthFollowsFromFormatAndCount) {
  Packet packet;
  const auto bytes = packet_of(contribution(), 8);
  ASSERT_EQ(parse(bytes, packet), ParseError::kNone);
  EXPECT_TRUE(payload_length_is_right(packet, {}));
  packet.header.count = 3;
  EXPECT_FALSE(payload_length_is_right(packet, {}));
  packet.header.format = numbers::Format::kBfp;
  packet.payload = packet.payload.first(0);
  EXPECT_FALSE(payload_length_is_right(packet, {}));
}

TEST(Packet, ParsedRandomBytesEmitThemselves) {
  Prng prng(11);
  std::size_t parsed = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> bytes(prng.below(40));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
    if (bytes.size() > 1 && prng.chance(0.9)) {  // most of them plausible
      bytes[0] = static_cast<std::byte>(0x10 | prng.below(5));
      bytes[1] = static_cast<std::byte>(prng.below(6) << 4 | prng.below(8));
    }
    Packet packet;
    if (parse(bytes, packet) != ParseError::kNone) continue;
    ++parsed;
    const HeaderBytes again = emit(packet.header);
    ASSERT_THAT(again, ::testing::ElementsAreArray(bytes.data(), kHeaderBytes)) << hex(bytes);
    ASSERT_EQ(kHeaderBytes + packet.payload.size() + packet.tag.size(), bytes.size());
  }
  EXPECT_GT(parsed, 1000u);
}

TEST(Packet, PrintsForPeople) {
  EXPECT_EQ(to_string(contribution()),
            "contribution job 4660 epoch 22136 worker 39612 slot 3567 chunk 19090927 2 x fp32 last");
}

TEST(EchoTime, TellsTimesThatAreLessThanHalfARangeApart) {
  for (const Nanoseconds answered : {Nanoseconds{0}, 3 * kSecond, 1000 * kSecond, kEchoTimeRange - 1}) {
    EXPECT_NE(echo_time(answered), 0) << "0 says nothing";
    for (const Nanoseconds before : {-200 * kMillisecond, -kMillisecond, Nanoseconds{0}, 250 * kMillisecond}) {
      const Nanoseconds since = echo_time_since(answered - before, echo_time(answered));
      EXPECT_NEAR(static_cast<double>(since), static_cast<double>(before), 2 << kEchoTimeBits);
    }
  }
}

}  // namespace
}  // namespace netfold::wire

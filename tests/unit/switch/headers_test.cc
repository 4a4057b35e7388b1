#include "switch/ethernet/headers.h"

#include <gtest/gtest.h>

#include <vector>

namespace netfold::switching {
namespace {

constexpr MacAddress kTo{0x0200'0000'0001}, kFrom{0x0200'0000'0002};

class HeadersTest : public ::testing::Test {
 protected:
  HeadersTest() : bytes_(kUdpFrameBytes + 100) {
    write_udp_headers({kTo, kFrom, 0x0a000001, 0x0a000002, 7200, 5000, 100}, bytes_.data());
  }

  Flaw parse_it() {
    return parse({nullptr, bytes_.data(), static_cast<std::uint32_t>(bytes_.size()), 3, false}, options_, parsed_);
  }
  std::byte* ip() { return bytes_.data() + kEthernetBytes; }
  void mend_ip_checksum(std::size_t header_bytes = kIpv4Bytes) {
    write_u16(ip() + 10, 0);
    write_u16(ip() + 10, static_cast<std::uint16_t>(~checksum({ip(), header_bytes})));
  }
  void insert(std::size_t at, std::vector<unsigned> what) {
    std::vector<std::byte> piece;
    for (const unsigned byte : what) piece.push_back(static_cast<std::byte>(byte));
    bytes_.insert(bytes_.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
  }

  std::vector<std::byte> bytes_;
  ParseOptions options_;
  ParsedFrame parsed_;
};

TEST_F(HeadersTest, ReadsWhatItWrites) {
  ASSERT_EQ(parse_it(), Flaw::kNone);
  EXPECT_EQ(parsed_.to, kTo);
  EXPECT_EQ(parsed_.from, kFrom);
  EXPECT_EQ(parsed_.ether_type, kIpv4Type);
  EXPECT_TRUE(parsed_.has_ip && parsed_.has_udp);
  EXPECT_EQ(parsed_.ip.to, 0x0a000001u);
  EXPECT_EQ(parsed_.ip.from, 0x0a000002u);
  EXPECT_EQ(parsed_.udp.to, 7200);
  EXPECT_EQ(parsed_.udp.from, 5000);
  EXPECT_EQ(parsed_.payload().size(), 100u);
  EXPECT_EQ(parsed_.payload().data(), bytes_.data() + kUdpFrameBytes);
}

TEST_F(HeadersTest, EthernetPaddingIsNoPayload) {
  bytes_.resize(bytes_.size() + 17);
  ASSERT_EQ(parse_it(), Flaw::kNone);
  EXPECT_EQ(parsed_.payload().size(), 100u);
}

TEST_F(HeadersTest, ReadsBehindOneTagAndTwo) {
  insert(12, {0x81, 0x00, 0x20, 0x2a});
  ASSERT_EQ(parse_it(), Flaw::kNone);
  EXPECT_EQ(parsed_.tags, 1);
  EXPECT_EQ(parsed_.vlan, 42);
  EXPECT_EQ(parsed_.payload().data(), bytes_.data() + kUdpFrameBytes + 4);
  insert(12, {0x88, 0xa8, 0x00, 0x07});
  ASSERT_EQ(parse_it(), Flaw::kNone);
  EXPECT_EQ(parsed_.tags, 2);
  EXPECT_EQ(parsed_.vlan, 7) << "the outer one";
  EXPECT_TRUE(parsed_.has_udp);
  insert(12, {0x81, 0x00, 0x00, 0x01});
  EXPECT_EQ(parse_it(), Flaw::kTooManyTags);
}

TEST_F(HeadersTest, ReadsBehindIpOptions) {
  insert(kEthernetBytes + kIpv4Bytes, {1, 1, 1, 1, 1, 1, 1, 0});  // no-operations, end
  ip()[0] = std::byte{0x47};
  write_u16(ip() + 2, static_cast<std::uint16_t>(kIpv4Bytes + 8 + kUdpBytes + 100));
  mend_ip_checksum(28);
  ASSERT_EQ(parse_it(), Flaw::kNone);
  EXPECT_EQ(parsed_.ip.header_bytes, 28);
  EXPECT_EQ(parsed_.udp.to, 7200);
  EXPECT_EQ(parsed_.payload().size(), 100u);
}

TEST_F(HeadersTest, EveryTruncationIsSeen) {
  const std::vector<std::byte> whole = bytes_;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    bytes_.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    bytes_.shrink_to_fit();
    EXPECT_EQ(parse_it(), size < kEthernetBytes ? Flaw::kRunt : Flaw::kIpHeader) << size;
    EXPECT_FALSE(parsed_.has_ip || parsed_.has_udp);
  }
}

TEST_F(HeadersTest, OversizeEnds) {
  bytes_.resize(options_.frame_bytes_max + 1);
  EXPECT_EQ(parse_it(), Flaw::kOversize);
}

TEST_F(HeadersTest, AGroupSendsNothing) {
  bytes_[6] |= std::byte{1};
  EXPECT_EQ(parse_it(), Flaw::kBadSource);
  EXPECT_TRUE(ends_here(Flaw::kBadSource));
}

TEST_F(HeadersTest, BadIpHeadersAreForwardedUnread) {
  struct {
    std::size_t at;
    unsigned value;
    Flaw flaw;
  } const cases[] = {{0, 0x65, Flaw::kIpHeader},   {0, 0x44, Flaw::kIpHeader}, {2, 0xff, Flaw::kIpHeader},
                     {8, 0x11, Flaw::kIpChecksum}, {6, 0x20, Flaw::kFragment}, {7, 0x01, Flaw::kFragment}};
  const std::vector<std::byte> good = bytes_;
  for (const auto& it : cases) {
    bytes_ = good;
    ip()[it.at] = static_cast<std::byte>(it.value);
    if (it.flaw == Flaw::kFragment) mend_ip_checksum();
    EXPECT_EQ(parse_it(), it.flaw) << it.at;
    EXPECT_FALSE(ends_here(it.flaw));
    EXPECT_FALSE(parsed_.has_ip || parsed_.has_udp);
    EXPECT_EQ(parsed_.payload_bytes, bytes_.size() - kEthernetBytes);
  }
}

TEST_F(HeadersTest, UdpLengthAndChecksumAreChecked) {
  std::byte* udp = ip() + kIpv4Bytes;
  write_u16(udp + 4, 200);
  EXPECT_EQ(parse_it(), Flaw::kUdpLength);
  write_u16(udp + 4, 108);
  for (std::size_t i = 0; i < 100; ++i) udp[kUdpBytes + i] = static_cast<std::byte>(37 * i);
  const std::uint32_t pseudo = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 108;
  const auto sum = static_cast<std::uint16_t>(~checksum({udp, 108}, pseudo));
  write_u16(udp + 6, sum);
  EXPECT_EQ(parse_it(), Flaw::kNone);
  udp[50] ^= std::byte{4};
  EXPECT_EQ(parse_it(), Flaw::kUdpChecksum);
  options_.check_udp = false;
  EXPECT_EQ(parse_it(), Flaw::kNone);
}

TEST_F(HeadersTest, AnAnswerGoesBack) {
  insert(12, {0x81, 0x00, 0x00, 0x2a});
  ASSERT_EQ(parse_it(), Flaw::kNone);
  turn_into_answer(parsed_, 60);
  bytes_.resize(bytes_.size() - 40);
  ASSERT_EQ(parse_it(), Flaw::kNone);
  EXPECT_EQ(parsed_.to, kFrom);
  EXPECT_EQ(parsed_.from, kTo);
  EXPECT_EQ(parsed_.vlan, 42);
  EXPECT_EQ(parsed_.ip.to, 0x0a000002u);
  EXPECT_EQ(parsed_.udp.to, 5000);
  EXPECT_EQ(parsed_.udp.from, 7200);
  EXPECT_EQ(parsed_.payload().size(), 60u);
}

// RFC 1071's own example, and all splits of odd and even lengths.
TEST(Checksum, IsOnesComplement) {
  const std::vector<std::byte> bytes{std::byte{0x00}, std::byte{0x01}, std::byte{0xf2}, std::byte{0x03},
                                     std::byte{0xf4}, std::byte{0xf5}, std::byte{0xf6}, std::byte{0xf7}};
  EXPECT_EQ(checksum(bytes), 0xddf2);
  std::vector<std::byte> many(1501);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (std::size_t size = 0; size <= many.size(); ++size) {
    std::uint32_t slow = 0;
    for (std::size_t i = 0; i < size; ++i) {
      slow += static_cast<std::uint32_t>(many[i]) << (i % 2 == 0 ? 8 : 0);
      slow = (slow & 0xffff) + (slow >> 16);
    }
    ASSERT_EQ(checksum({many.data(), size}), slow) << size;
  }
}

TEST(MacAddress, PrintsAndParses) {
  EXPECT_EQ(to_string(kTo), "02:00:00:00:00:01");
  EXPECT_EQ(parse_mac("02:00:00:00:00:01"), kTo);
  EXPECT_EQ(parse_mac("FF:ff:ff:ff:ff:ff")->number, 0xffffffffffffu);
  for (const char* wrong : {"", "02:00:00:00:00", "02-00-00-00-00-01", "02:00:00:00:00:0g", "02:00:00:00:00:011"}) {
    EXPECT_FALSE(parse_mac(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace netfold::switching

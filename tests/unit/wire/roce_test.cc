// RoCE packets are what the specification and captured frames say, and nothing else is taken for one.
#include "wire/roce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "wire/aggregation_header.h"
#include "wire/crc32.h"
#include "wire/roce_network.h"

namespace netfold::wire::roce {
namespace {

using Bytes = std::vector<std::byte>;

// Captured from hardware, without FCS.
const std::string kWriteOnlyFrame =
    "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002"
    "0a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb";
const std::string kAckFrame =
    "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002"
    "1140ffff0000010900a788c00000000525f0c038";

// RoCE v2: a congestion notice of a ConnectX-4 Lx, of an opcode that is not known here.
const std::string kNoticeFrameV2 =
    "e41d2dab2bc27cfe90643b32080045c2003c718c40004011"
    "91610a0011010a001201000012b7002800008100ffff4000"
    "0118000000000000000000000000000000000000000082fd002a";

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Bytes roce_packet_of(const Header& header, std::span<const std::byte> payload) {
  Bytes bytes(packet_bytes(header.opcode, payload.size(), header.version));
  const std::size_t at = emit(header, payload.size(), bytes);
  std::copy(payload.begin(), payload.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  seal(bytes);
  return bytes;
}

TEST(Roce, ReadsAndWritesTheGoldenFrames) {
  for (const std::string& text : {kWriteOnlyFrame, kAckFrame}) {
    const Bytes frame = from_hex(text);
    const auto bytes = std::span(frame).subspan(kEthernetBytes);
    Packet packet;
    ASSERT_EQ(parse(bytes, packet), ParseError::kNone);
    EXPECT_TRUE(icrc_is_right(packet.packet));
    EXPECT_EQ(packet.packet.size(), bytes.size());
    EXPECT_EQ(roce_packet_of(packet.header, packet.payload), Bytes(bytes.begin(), bytes.end()));
  }
}

TEST(Roce, NamesTheFieldsOfTheGoldenFrames) {
  Packet write, ack;
  const Bytes write_frame = from_hex(kWriteOnlyFrame), ack_frame = from_hex(kAckFrame);
  ASSERT_EQ(parse(std::span(write_frame).subspan(kEthernetBytes), write), ParseError::kNone);
  ASSERT_EQ(parse(std::span(ack_frame).subspan(kEthernetBytes), ack), ParseError::kNone);
  EXPECT_EQ(write.header.opcode, Opcode::kWriteOnly);
  EXPECT_EQ(write.header.queue_pair, 0x10au);
  EXPECT_EQ(write.header.psn, 0xa788bcu);
  EXPECT_EQ(write.header.address, 0x55d4c0726000u);
  EXPECT_EQ(write.header.key, 0x47b3u);
  EXPECT_EQ(write.header.length_bytes, 5u);
  EXPECT_EQ(write.payload.size(), 5u);
  EXPECT_TRUE(write.header.wants_ack);
  EXPECT_EQ(ack.header.psn, 0xa788c0u);
  EXPECT_EQ(ack.header.syndrome, 0);
  EXPECT_EQ(ack.header.messages, 5u);
  EXPECT_THAT(to_string(write.header), ::testing::HasSubstr("write only"));
}

TEST(Roce, IcrcIgnoresWhatRoutersChangeAndNothingElse) {
  Bytes frame = from_hex(kWriteOnlyFrame);
  const auto packet = std::span(frame).subspan(kEthernetBytes);
  const std::vector<std::size_t> changeable{1, 2, 3, 7, kGrhBytes + 4};  // and the low nibble of byte 0
  for (std::size_t at = 0; at < packet.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      packet[at] ^= static_cast<std::byte>(1u << bit);
      const bool may = std::count(changeable.begin(), changeable.end(), at) > 0 || (at == 0 && bit < 4);
      EXPECT_EQ(icrc_is_right(packet), may) << "byte " << at << " bit " << bit;
      packet[at] ^= static_cast<std::byte>(1u << bit);
    }
  }
}

TEST(Roce, TheIcrcOfVersion2IsThatOfHardware) {
  Bytes frame = from_hex(kNoticeFrameV2);
  const auto packet = std::span(frame).subspan(kEthernetBytes);
  ASSERT_EQ(version_of(packet), Version::kV2);
  const std::vector<std::size_t> changeable{1, 8, 10, 11, 26, 27, network_bytes(Version::kV2) + 4};
  for (std::size_t at = 1; at < packet.size(); ++at) {  // byte 0 says which version it is
    for (unsigned bit = 0; bit < 8; ++bit) {
      packet[at] ^= static_cast<std::byte>(1u << bit);
      EXPECT_EQ(icrc_is_right(packet), std::count(changeable.begin(), changeable.end(), at) > 0) << at << " " << bit;
      packet[at] ^= static_cast<std::byte>(1u << bit);
    }
  }
  Packet read;
  EXPECT_EQ(parse(packet, read, Version::kV2), ParseError::kOpcode);
  EXPECT_EQ(parse(packet, read, Version::kV1), ParseError::kVersion);
}

TEST(Roce, Version2IsReadOnlyWhereAllOfItIsRight) {
  const Header header{.version = Version::kV2,
                      .from = gid_of_ipv4(0x0a000001),
                      .to = gid_of_ipv4(0x0a000002),
                      .opcode = Opcode::kWriteFirst};
  const Bytes right = roce_packet_of(header, Bytes(64));
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes bytes = right;
    bytes[at] = std::byte{value};
    Packet packet;
    return parse(bytes, packet, Version::kV2);
  };
  EXPECT_EQ(with(0, 0x45), ParseError::kNone);
  EXPECT_EQ(with(0, 0x46), ParseError::kVersion);   // options
  EXPECT_EQ(with(9, 6), ParseError::kVersion);      // TCP
  EXPECT_EQ(with(23, 0xb8), ParseError::kVersion);  // port 4792
  EXPECT_EQ(with(6, 0x60), ParseError::kLength);    // a fragment
  EXPECT_EQ(with(8, 3), ParseError::kLength);       // a time to live that the checksum does not cover
  EXPECT_EQ(with(25, 1), ParseError::kLength);      // UDP's length
  for (std::size_t size_bytes = 0; size_bytes < right.size(); ++size_bytes) {
    Packet packet;
    EXPECT_NE(parse(std::span(right).first(size_bytes), packet, Version::kV2), ParseError::kNone);
  }
}

TEST(Roce, ASumIsMarkedInEitherVersionAndNothingElseChanges) {
  for (const Version version : {Version::kV1, Version::kV2}) {
    Header header{.version = version, .opcode = Opcode::kWriteLastImmediate, .wants_ack = true, .psn = 0xfffffe};
    header.immediate = 9;
    if (version == Version::kV2) header.from = header.to = gid_of_ipv4(0x0a000001);
    Bytes bytes = roce_packet_of(header, Bytes(64));
    Packet packet;
    ASSERT_EQ(parse(bytes, packet, version), ParseError::kNone);
    EXPECT_FALSE(is_marked_as_sum(packet.header));
    mark_as_sum(bytes);
    seal(bytes);
    ASSERT_EQ(parse(bytes, packet, version), ParseError::kNone);
    EXPECT_TRUE(is_marked_as_sum(packet.header));
    EXPECT_TRUE(icrc_is_right(packet.packet));
    EXPECT_EQ(packet.header.immediate, 9 | kSummedImmediate);
    packet.header.flow_label = header.flow_label;
    packet.header.reserved = header.reserved;
    packet.header.immediate = header.immediate;
    EXPECT_EQ(packet.header, header);
  }
}

TEST(Roce, ConnectionsOfVersion2SendFromPortsOfTheirOwn) {
  EXPECT_EQ(ipv4_of(gid_of_ipv4(0x0a0b0c0d)), 0x0a0b0c0du);
  EXPECT_EQ(ipv4_of(Gid{0xfe, 0x80}), std::nullopt);
  EXPECT_EQ(source_port_of(0x100, 0x101), source_port_of(0x100, 0x101));
  EXPECT_NE(source_port_of(0x100, 0x101), source_port_of(0x102, 0x103));
  EXPECT_GE(source_port_of(0xffffff, 0xffffff), 0xc000);
}

TEST(Roce, ReadsWhatItWrites) {
  Prng prng(8915);
  constexpr std::array kOpcodes{Opcode::kWriteFirst,         Opcode::kWriteMiddle, Opcode::kWriteLast,
                                Opcode::kWriteLastImmediate, Opcode::kWriteOnly,   Opcode::kWriteOnlyImmediate,
                                Opcode::kAcknowledge};
  for (int i = 0; i < 2000; ++i) {
    Header header;
    header.opcode = kOpcodes[prng.below(kOpcodes.size())];
    header.version = prng.chance(0.5) ? Version::kV1 : Version::kV2;
    for (auto* gid : {&header.from, &header.to}) {
      for (std::uint8_t& byte : *gid) byte = static_cast<std::uint8_t>(prng.next());
      if (header.version == Version::kV2) *gid = gid_of_ipv4(static_cast<std::uint32_t>(prng.next()));
    }
    header.traffic_class = static_cast<std::uint8_t>(prng.next());
    if (header.version == Version::kV1) {
      header.flow_label = static_cast<std::uint32_t>(prng.below(1 << 20));
    } else {
      header.source_port = static_cast<std::uint16_t>(prng.next());
    }
    header.reserved = static_cast<std::uint8_t>(prng.below(128));
    header.hop_limit = static_cast<std::uint8_t>(prng.next());
    header.is_solicited = prng.chance(0.5);
    header.wants_ack = prng.chance(0.5);
    header.partition = static_cast<std::uint16_t>(prng.next());
    header.queue_pair = static_cast<std::uint32_t>(prng.below(1 << 24));
    header.psn = static_cast<std::uint32_t>(prng.below(1 << 24));
    if (has_reth(header.opcode)) {
      header.address = prng.next();
      header.key = static_cast<std::uint32_t>(prng.next());
      header.length_bytes = static_cast<std::uint32_t>(prng.next());
    }
    if (has_immediate(header.opcode)) header.immediate = static_cast<std::uint32_t>(prng.next());
    if (header.opcode == Opcode::kAcknowledge) {
      header.syndrome = static_cast<std::uint8_t>(prng.next());
      header.messages = static_cast<std::uint32_t>(prng.below(1 << 24));
    }
    Bytes payload(header.opcode == Opcode::kAcknowledge ? 0 : prng.below(kPathMtu + 1));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(prng.next());
    Bytes bytes = roce_packet_of(header, payload);
    const std::size_t size_bytes = bytes.size();
    bytes.resize(size_bytes + prng.below(20));  // an Ethernet frame may be padded
    Packet packet;
    ASSERT_EQ(parse(bytes, packet, header.version), ParseError::kNone);
    ASSERT_EQ(packet.header, header);
    ASSERT_EQ(packet.packet.size(), size_bytes);
    ASSERT_TRUE(icrc_is_right(packet.packet));
    ASSERT_EQ(Bytes(packet.payload.begin(), packet.payload.end()), payload);
  }
}

TEST(Roce, RefusesWhatItCannotRead) {
  const Bytes right = roce_packet_of({.opcode = Opcode::kWriteFirst}, Bytes(64));
  const auto read = [](const Bytes& bytes) {
    Packet packet;
    return parse(bytes, packet);
  };
  ASSERT_EQ(read(right), ParseError::kNone);
  for (std::size_t size_bytes = 0; size_bytes < right.size(); ++size_bytes) {
    EXPECT_NE(read(Bytes(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size_bytes))), ParseError::kNone);
  }
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes bytes = right;
    bytes[at] = std::byte{value};
    return read(bytes);
  };
  EXPECT_EQ(with(0, 0x40), ParseError::kVersion);
  EXPECT_EQ(with(6, 0x11), ParseError::kVersion);
  EXPECT_EQ(with(kGrhBytes, 0x04), ParseError::kOpcode);  // a send
  EXPECT_EQ(with(5, 0x5f), ParseError::kLength);          // 63 bytes of payload, and no pad
  EXPECT_EQ(with(4, 0xff), ParseError::kLength);
  EXPECT_EQ(with(5, 0x08), ParseError::kLength);
}

TEST(Aggregation, HasTheBytesOfTheDiagram) {
  const AggregationHeader header{.format = numbers::Format::kBfp,
                                 .flags = kEndsTensor,
                                 .job = 0x1234,
                                 .epoch = 0x5678,
                                 .rank = 7,
                                 .block = 16,
                                 .mantissa = 7,
                                 .message = 0x9abcdef0,
                                 .length_bytes = 0x1f000};
  const auto bytes = emit(header);
  const Bytes expected = from_hex(
      "4e4615011234567800071007"
      "9abcdef00001f000");
  EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), expected);
  AggregationHeader read;
  ASSERT_EQ(parse(bytes, read), AggregationError::kNone);
  EXPECT_EQ(read, header);
}

TEST(Aggregation, AOneWayMessageNamesTheOtherPartyBesideTheRank) {
  AggregationHeader header{.format = numbers::Format::kFp32, .job = 1, .epoch = 2, .length_bytes = 1008};
  header.rank = 3;
  const struct {
    Way way;
    std::uint8_t other, flags;
    std::string bytes;
  } cases[]{{Way::kToAll, 0, 0, "4e461100000100020003000000000000000003f0"},
            {Way::kToOwner, 5, 0, "4e461104000100020503000000000000000003f0"},
            {Way::kFromGiver, 5, kEndsTensor, "4e461105000100028503000000000000000003f0"},
            {Way::kFromGiver, 0, kSummed, "4e461106000100028003000000000000000003f0"}};
  for (const auto& each : cases) {
    header.way = each.way;
    header.other = each.other;
    header.flags = each.flags;
    const auto bytes = emit(header);
    EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), from_hex(each.bytes)) << to_string(header);
    AggregationHeader read;
    ASSERT_EQ(parse(bytes, read), AggregationError::kNone);
    EXPECT_EQ(read, header) << to_string(read);
  }
  header.way = Way::kToAll;
  header.other = 0;
  header.rank = 0x8503;  // the whole field, without the flag
  AggregationHeader read;
  ASSERT_EQ(parse(emit(header), read), AggregationError::kNone);
  EXPECT_EQ(read, header);
}

TEST(Aggregation, AOneWayMessageIsFullForThoseWhoseBytesItCarries) {
  AggregationHeader header{.way = Way::kToOwner, .other = 2};
  EXPECT_TRUE(header.is_full_from(1) && header.is_full_from(2));
  EXPECT_TRUE(header.is_full_to(2) && !header.is_full_to(1));
  header.way = Way::kFromGiver;
  EXPECT_TRUE(header.is_full_from(2) && !header.is_full_from(1));
  EXPECT_TRUE(header.is_full_to(1) && !header.is_full_to(2));
  header.way = Way::kToAll;
  EXPECT_TRUE(header.is_full_from(1) && header.is_full_to(1));
}

// The lengths of a packet that has been cut or has grown are those of one that was written so.
TEST(Roce, APacketOfAnotherLengthHasItsLengths) {
  for (const Version version : {Version::kV1, Version::kV2}) {
    Header header{
        .version = version, .from = gid_of_ipv4(0x0a000001), .to = gid_of_ipv4(0x0a000002), .source_port = 0xc123};
    Bytes long_one = roce_packet_of(header, Bytes(kPathMtu, std::byte{0}));
    const Bytes short_one = roce_packet_of(header, Bytes(kShortBytes, std::byte{0}));
    long_one.resize(short_one.size());
    set_transport_bytes(long_one, version, short_one.size() - network_bytes(version));
    seal(long_one);
    EXPECT_EQ(long_one, short_one);
    if (version == Version::kV2) EXPECT_GE(kEthernetBytes + short_one.size(), 60u) << "no padding";
  }
}

TEST(Aggregation, KnowsItsPackets) {
  const AggregationHeader full{.length_bytes = static_cast<std::uint32_t>(kMessageRoom)};
  EXPECT_EQ(full.packets(), 128u);
  for (std::uint32_t length_bytes = kFirstRoom + 4; length_bytes <= kMessageRoom; length_bytes += 4) {
    const AggregationHeader header{.length_bytes = length_bytes};
    std::size_t sum = 0;
    for (std::uint32_t index = 0; index < header.packets(); ++index) sum += header.payload_bytes(index);
    ASSERT_EQ(sum, length_bytes);
    ASSERT_GE(header.packets(), 2u);
  }
}

TEST(Aggregation, RefusesWhatHasNoMeaning) {
  const auto error_of = [](AggregationHeader header) {
    AggregationHeader read;
    return parse(emit(header), read);
  };
  const AggregationHeader right{.format = numbers::Format::kFp32, .length_bytes = 4096};
  EXPECT_EQ(error_of(right), AggregationError::kNone);
  AggregationHeader wrong = right;
  wrong.way = Way::kToOwner;
  wrong.other = 31;
  EXPECT_EQ(error_of(wrong), AggregationError::kNone);
  for (const std::uint8_t other : {32, 64, 127}) {
    wrong.other = other;
    EXPECT_EQ(error_of(wrong), AggregationError::kOther) << int{other};
  }
  wrong = right;
  wrong.block = 16;
  EXPECT_EQ(error_of(wrong), AggregationError::kShape);
  wrong = right;
  wrong.format = numbers::Format::kBfp;
  EXPECT_EQ(error_of(wrong), AggregationError::kShape);
  for (const std::size_t length_bytes : {std::size_t{0}, kFirstRoom, std::size_t{4097}, kMessageRoom + 4}) {
    wrong = right;
    wrong.length_bytes = static_cast<std::uint32_t>(length_bytes);
    EXPECT_EQ(error_of(wrong), AggregationError::kLength) << length_bytes;
  }
  auto bytes = emit(right);
  wrong = right;
  wrong.workers = 26;
  AggregationHeader read;
  EXPECT_EQ(parse(emit(wrong), read, Version::kV2), AggregationError::kNone);
  EXPECT_EQ(read, wrong);
  EXPECT_EQ(error_of(wrong), AggregationError::kFlags) << "version 1 does not say how many";
  bytes[2] = std::byte{0x1f};
  EXPECT_EQ(parse(bytes, read), AggregationError::kFormat);
  bytes[0] = std::byte{0};
  EXPECT_EQ(parse(bytes, read), AggregationError::kForeign);
  EXPECT_EQ(parse(std::span(bytes).first(19), read), AggregationError::kForeign);
}

}  // namespace
}  // namespace netfold::wire::roce

#include "wire/tag.h"

#include <gtest/gtest.h>

#include <vector>

namespace netfold::wire {
namespace {

std::vector<std::byte> bytes_up_to(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TagKey counting_key() {
  TagKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}

// SipHash-2-4-128 of the empty message and of one byte 00 under the key 00..0f: vectors_sip128 of its authors.
TEST(Tag, MatchesThePublishedVectors) {
  const Tag empty{std::byte{0xa3}, std::byte{0x81}, std::byte{0x7f}, std::byte{0x04}, std::byte{0xba}, std::byte{0x25},
                  std::byte{0xa8}, std::byte{0xe6}, std::byte{0x6d}, std::byte{0xf6}, std::byte{0x72}, std::byte{0x14},
                  std::byte{0xc7}, std::byte{0x55}, std::byte{0x02}, std::byte{0x93}};
  EXPECT_EQ(make_tag(counting_key(), {}, {}), empty);
  const Tag one{std::byte{0xda}, std::byte{0x87}, std::byte{0xc1}, std::byte{0xd8}, std::byte{0x6b}, std::byte{0x99},
                std::byte{0xaf}, std::byte{0x44}, std::byte{0x34}, std::byte{0x76}, std::byte{0x59}, std::byte{0x11},
                std::byte{0x9b}, std::byte{0x22}, std::byte{0xfc}, std::byte{0x45}};
  EXPECT_EQ(make_tag(counting_key(), bytes_up_to(1), {}), one);
}

TEST(Tag, CoversHeadAndPayloadAsOnePiece) {
  const auto bytes = bytes_up_to(100);
  const std::span<const std::byte> all(bytes);
  const Tag tag = make_tag(counting_key(), all.first(16), all.subspan(16));
  EXPECT_EQ(tag, make_tag(counting_key(), all, {}));
  EXPECT_TRUE(tag_is_right(counting_key(), all, tag));
}

TEST(Tag, IsWrongForAnyOtherBitKeyOrLength) {
  auto bytes = bytes_up_to(40);
  const Tag tag = make_tag(counting_key(), bytes, {});
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(tag_is_right(counting_key(), bytes, tag)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  TagKey other = counting_key();
  other[15] ^= std::byte{1};
  EXPECT_FALSE(tag_is_right(other, bytes, tag));
  EXPECT_FALSE(tag_is_right(counting_key(), bytes, std::span(tag).first(15)));
  EXPECT_FALSE(tag_is_right(counting_key(), bytes, {}));
}

TEST(TagKeys, ChangeWhenTheNumbersOfChunksWrap) {
  constexpr std::uint32_t kStep = 1u << 30;
  TagKeys keys(counting_key(), 100);
  EXPECT_EQ(keys.at(100), counting_key());
  EXPECT_EQ(keys.at(0x7fffffff), counting_key());
  std::vector<TagKey> of_chunk_7;
  for (std::uint64_t position = 100; position < std::uint64_t{5} << 32; position += kStep) {
    keys.reach(static_cast<std::uint32_t>(position));
    keys.reach(static_cast<std::uint32_t>(position - 5));  // late news changes nothing
    if (position % (std::uint64_t{1} << 32) == 100) of_chunk_7.push_back(keys.at(7));
  }
  ASSERT_EQ(of_chunk_7.size(), 5u);
  for (std::size_t lap = 0; lap < 5; ++lap) {
    for (std::size_t other = 0; other < lap; ++other) EXPECT_NE(of_chunk_7[lap], of_chunk_7[other]);
  }
}

// One side may be a little further than the other: both must mean the same key.
TEST(TagKeys, AreTheSameForAllThatAreNear) {
  for (const std::uint32_t start : {0xfffffff0u, 0x0000000fu, 0x7ffffff8u}) {
    TagKeys behind(counting_key(), start), ahead = behind;
    ahead.reach(start + 40);
    for (std::uint32_t chunk = start - 64; chunk != start + 64; ++chunk) EXPECT_EQ(behind.at(chunk), ahead.at(chunk));
  }
}

}  // namespace
}  // namespace netfold::wire

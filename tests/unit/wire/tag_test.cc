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

TEST(Tag, IsOfAllKernelsTheSame) {
  const auto bytes = bytes_up_to(5000);
  const std::span<const std::byte> all(bytes);
  const HashKernel& plain = *all_hash_kernels().back();
  for (const HashKernel* kernel : all_hash_kernels()) {
    if (!kernel->is_supported()) continue;
    const Tag tag = Tagger(counting_key(), *kernel).tag(all.first(16), all.subspan(16));
    EXPECT_EQ(tag, Tagger(counting_key(), plain).tag(all.first(16), all.subspan(16))) << kernel->name;
  }
}

// Two heads hide whether their payloads have the same hash.
TEST(Tag, IsAnotherOneUnderAnotherHead) {
  const Tagger tagger(counting_key());
  const auto bytes = bytes_up_to(32);
  EXPECT_NE(tagger.tag(std::span(bytes).first(16), {}), tagger.tag(std::span(bytes).last(16), {}));
}

TEST(Tag, IsWrongForAnyOtherBitKeyOrLength) {
  auto bytes = bytes_up_to(40);
  const auto is_right = [&](const Tagger& tagger, const auto& tag) {
    return tagger.is_right(std::span(bytes).first(16), std::span(bytes).subspan(16), tag);
  };
  const Tagger tagger(counting_key());
  const Tag tag = tagger.tag(std::span(bytes).first(16), std::span(bytes).subspan(16));
  EXPECT_TRUE(is_right(tagger, tag));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(is_right(tagger, tag)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  TagKey other = counting_key();
  other[15] ^= std::byte{1};
  EXPECT_FALSE(is_right(Tagger(other), tag));
  EXPECT_FALSE(is_right(tagger, std::span(tag).first(15)));
  EXPECT_FALSE(is_right(tagger, std::span(tag).first(0)));
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(is_right(tagger, tag)) << "a zero more";
}

TEST(TagKeys, ChangeWhenTheNumbersOfChunksWrap) {
  constexpr std::uint32_t kStep = 1u << 30;
  TagKeys keys(counting_key(), 100);
  const auto tag_of = [&keys](std::uint32_t chunk) { return keys.at(chunk).tag({}, {}); };
  EXPECT_EQ(tag_of(100), Tagger(counting_key()).tag({}, {}));
  EXPECT_EQ(tag_of(0x7fffffff), tag_of(100));
  std::vector<Tag> of_chunk_7;
  for (std::uint64_t position = 100; position < std::uint64_t{5} << 32; position += kStep) {
    keys.reach(static_cast<std::uint32_t>(position));
    keys.reach(static_cast<std::uint32_t>(position - 5));  // late news changes nothing
    if (position % (std::uint64_t{1} << 32) == 100) of_chunk_7.push_back(tag_of(7));
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
    for (std::uint32_t chunk = start - 64; chunk != start + 64; ++chunk) {
      EXPECT_EQ(behind.at(chunk).tag({}, {}), ahead.at(chunk).tag({}, {}));
    }
  }
}

}  // namespace
}  // namespace netfold::wire

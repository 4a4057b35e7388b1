// The CRC-32 equals its definition, whatever the length, the alignment and what came before.
#include "wire/crc32.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace netfold::wire {
namespace {

// The specification, one bit at a time.
std::uint32_t bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t state = 0xffffffff;
  for (const std::byte byte : bytes) {
    state ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~state;
}

TEST(Crc32, IsTheCheckValueOfTheCatalogues) {
  const char text[] = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(text, 9))), 0xcbf43926u);
}

TEST(Crc32, IsAsDefined) {
  Prng prng(32);
  std::vector<std::byte> room(5000);
  for (std::byte& byte : room) byte = static_cast<std::byte>(prng.next());
  for (int i = 0; i < 4000; ++i) {
    const std::size_t size_bytes = prng.below(i % 10 == 0 ? 4000 : 300);
    const auto bytes = std::span<const std::byte>(room).subspan(prng.below(1000), size_bytes);
    const std::size_t cut = prng.below(size_bytes + 1);
    const std::uint32_t expected = bit_by_bit(bytes);
    ASSERT_EQ(crc32(bytes), expected) << size_bytes << " bytes";
    ASSERT_EQ(crc32(bytes.subspan(cut), crc32(bytes.first(cut))), expected) << size_bytes << " bytes, cut at " << cut;
  }
}

TEST(Crc32, OfAnEndThatIsKnown) {
  Prng prng(33);
  std::vector<std::byte> bytes(1500);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  for (const std::size_t end_bytes : {0, 1, 4, 17, 1024}) {
    const Crc32Shift shift(end_bytes);
    for (const std::size_t begin_bytes : {0, 1, 52, 400}) {
      const auto whole = std::span<const std::byte>(bytes).first(begin_bytes + end_bytes);
      EXPECT_EQ(shift(crc32(whole.first(begin_bytes))) ^ crc32(whole.subspan(begin_bytes)), crc32(whole));
    }
  }
}

}  // namespace
}  // namespace netfold::wire

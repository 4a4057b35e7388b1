// Every way to compute a CRC-32 equals the bit-by-bit one, whatever the length, the alignment and what came before.
#include "wire/crc32.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/prng.h"

namespace netfold::wire {
namespace {

TEST(Crc32, IsTheCheckValueOfTheCatalogues) {
  const char text[] = "123456789";
  for (const Crc32& way : all_crc32()) {
    if (way.is_supported()) {
      EXPECT_EQ(way.compute(std::as_bytes(std::span(text, 9)), 0), 0xcbf43926u) << way.name;
    }
  }
}

TEST(Crc32, IsTheSameHoweverItIsComputed) {
  Prng prng(32);
  std::vector<std::byte> room(5000);
  for (std::byte& byte : room) byte = static_cast<std::byte>(prng.next());
  const Crc32& specification = all_crc32().back();
  for (int i = 0; i < 4000; ++i) {
    const std::size_t size_bytes = prng.below(i % 10 == 0 ? 4000 : 300);
    const auto bytes = std::span<const std::byte>(room).subspan(prng.below(1000), size_bytes);
    const std::size_t cut = prng.below(size_bytes + 1);
    const std::uint32_t expected = specification.compute(bytes, 0);
    for (const Crc32& way : all_crc32()) {
      if (!way.is_supported()) continue;
      ASSERT_EQ(way.compute(bytes, 0), expected) << way.name << " of " << size_bytes << " bytes";
      ASSERT_EQ(way.compute(bytes.subspan(cut), way.compute(bytes.first(cut), 0)), expected) << way.name;
    }
    ASSERT_EQ(crc32(bytes), expected);
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

#include "switch/ethernet/mac_table.h"

#include <gtest/gtest.h>

namespace netfold::switching {
namespace {

constexpr MacAddress kA{0x0200'0000'000a}, kB{0x0200'0000'000b};

TEST(MacTable, LearnsMovesAndForgets) {
  MacTable table({64, 10 * kSecond});
  EXPECT_EQ(table.find(kA, 0), link::kNoPort);
  table.learn(kA, 3, kSecond);
  table.learn(kB, 5, kSecond);
  EXPECT_EQ(table.find(kA, kSecond), 3);
  EXPECT_EQ(table.find(kB, kSecond), 5);
  table.learn(kA, 4, 2 * kSecond);
  EXPECT_EQ(table.find(kA, 2 * kSecond), 4);
  EXPECT_EQ(table.moved(), 1u);
  table.forget_port(4);
  EXPECT_EQ(table.find(kA, 2 * kSecond), link::kNoPort);
  EXPECT_EQ(table.find(kB, 2 * kSecond), 5);
}

TEST(MacTable, SilenceAges) {
  MacTable table({64, 10 * kSecond});
  table.learn(kA, 1, kSecond);
  EXPECT_EQ(table.find(kA, 10 * kSecond), 1);
  EXPECT_EQ(table.find(kA, 12 * kSecond), link::kNoPort);
  EXPECT_TRUE(table.entries(12 * kSecond).empty());
  table.learn(kA, 1, 12 * kSecond);
  EXPECT_EQ(table.find(kA, 20 * kSecond), 1);
  ASSERT_EQ(table.entries(20 * kSecond).size(), 1u);
  EXPECT_EQ(table.entries(20 * kSecond)[0].address, kA);
}

TEST(MacTable, AFloodOfAddressesPushesOutTheOldestOnly) {
  MacTable table({256, 300 * kSecond});
  for (std::uint64_t i = 1; i <= 100'000; ++i) {
    table.learn({i << 4}, static_cast<link::PortNumber>(i % 8), kSecond + static_cast<Nanoseconds>(i) * kMillisecond);
  }
  EXPECT_EQ(table.capacity(), 256u);
  EXPECT_LE(table.entries(102 * kSecond).size(), 256u);
  EXPECT_GT(table.pushed_out(), 90'000u);
  EXPECT_EQ(table.find({std::uint64_t{100'000} << 4}, 102 * kSecond), 0) << "the newest is there";
}

}  // namespace
}  // namespace netfold::switching

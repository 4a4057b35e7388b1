// A rank that stalls, or to which nothing comes any more, in a group that has a switch. That the switch is lost, too,
// must not give the other ranks a new timeout.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "protocol/both_world.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

constexpr std::uint16_t kStalledWorld = 4;
constexpr double kStalledStreamBytesS = 12.5e6;
constexpr std::size_t kStalledElements = std::size_t{1} << 20;
constexpr Nanoseconds kLate = kSecond / 2;  // of an error, behind the timeout

class StalledRank : public ::testing::TestWithParam<int> {};

// While both ways are measured, the switch falls silent, and nothing comes to a rank any more. This rank still says
// that the switch is lost, and then no more. (TCP sends little where nothing is confirmed.)
TEST_P(StalledRank, IsNamedWithinTheTimeoutWhileTheWaysAreMeasured) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
  BothWorld world(kStalledWorld, kStalledStreamBytesS, seed);
  ASSERT_TRUE(world.run_for(kSecond));  // all have met
  const Nanoseconds since = world.now();
  world.silence_switch();
  world.submit({.count = kStalledElements});
  ASSERT_TRUE(world.run_for(kSecond / 2));
  world.deafen(GetParam());
  ASSERT_TRUE(world.run_for(3 * kSecond / 2));
  world.stop(GetParam());
  EXPECT_FALSE(world.run_until_done(2 * BothWorld::kTimeout));
  ASSERT_TRUE(world.failure());
  EXPECT_EQ(world.failure()->rank, GetParam()) << world.failure()->message;
  EXPECT_LT(to_seconds(world.now() - since), to_seconds(BothWorld::kTimeout + kLate)) << world.failure()->message;
}

// Nothing comes to a rank any more, neither of the ranks nor of the switch.
TEST_P(StalledRank, IsNamedWithinTheTimeoutWhereItIsDeaf) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
  for (Nanoseconds after = kMillisecond; after < 300 * kMillisecond; after *= 3) {
    SCOPED_TRACE(fmt::format("{} ms after the first tensor", after / kMillisecond));
    BothWorld world(kStalledWorld, kStalledStreamBytesS, seed);
    ASSERT_TRUE(world.run_for(kSecond));
    for (int i = 0; i < 20; ++i) world.submit({.count = kStalledElements});
    ASSERT_TRUE(world.run_for(after));
    world.deafen(GetParam());
    const Nanoseconds since = world.now();
    EXPECT_FALSE(world.run_until_done(2 * BothWorld::kTimeout));
    ASSERT_TRUE(world.failure());
    EXPECT_EQ(world.failure()->rank, GetParam()) << world.failure()->message;
    EXPECT_LT(to_seconds(world.now() - since), to_seconds(BothWorld::kTimeout + kLate)) << world.failure()->message;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, StalledRank, ::testing::Range(0, int{kStalledWorld}));

}  // namespace
}  // namespace netfold::tests

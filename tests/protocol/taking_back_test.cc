// A switch whose link becomes slow while it has a part of a tensor: the ranks take back what they have not handed over,
// and all of them the same.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "protocol/both_world.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

constexpr std::uint16_t kTakersWorld = 4;
constexpr double kTakersStream = 4e6, kWideLink = 4 * kTakersStream * kTakersWorld;  // bytes/s
constexpr std::size_t kTakersElements = 1'000'000;
constexpr Nanoseconds kTakersLimit = 60 * kSecond;
constexpr std::uint64_t kTakersSeeds = 4;

class TakingBackFrom {
 public:
  explicit TakingBackFrom(std::uint64_t seed) : world_(kTakersWorld, kTakersStream, seed) {
    world_.narrow_switch(kWideLink);
    for (int tensor = 0; tensor < 4; ++tensor) sum();
  }
  void sum() {
    begin();
    end();
  }
  void begin() { world_.submit({.count = kTakersElements}); }
  void end() {
    ASSERT_TRUE(world_.run_until_done(kTakersLimit)) << (world_.failure() ? world_.failure()->message : "too slow");
    EXPECT_EQ(world_.wrong_results(), 0);
  }
  // Parts that each rank has taken back so far.
  std::uint64_t taken_back() const {
    const auto taken = world_.counters("taken_back_parts");
    EXPECT_EQ(std::ranges::count(taken, taken.front()), kTakersWorld) << "ranks took different parts";
    return taken.front();
  }
  BothWorld& world() { return world_; }

 private:
  BothWorld world_;
};

TEST(TakingBackFromASwitch, ChangesNoBit) {
  for (const std::uint64_t seed : random_seeds(kTakersSeeds)) {
    SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
    TakingBackFrom takers(seed);
    const std::uint64_t before = takers.taken_back();
    takers.begin();
    ASSERT_TRUE(takers.world().run_for(40 * kMillisecond));
    takers.world().narrow_switch(kWideLink / 32);
    takers.end();
    EXPECT_GT(takers.taken_back(), before);
    takers.world().narrow_switch(kWideLink);
    for (int tensor = 0; tensor < 4; ++tensor) takers.sum();
  }
}

// The ranks take what none of them has begun, and sum again what the switch had.
TEST(TakingBackFromASwitch, ThatIsLostThenChangesNoBit) {
  for (const std::uint64_t seed : random_seeds(kTakersSeeds)) {
    SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
    TakingBackFrom takers(seed);
    takers.begin();
    ASSERT_TRUE(takers.world().run_for(40 * kMillisecond));
    takers.world().narrow_switch(kWideLink / 64);
    ASSERT_TRUE(takers.world().run_for((1 + static_cast<Nanoseconds>(seed % 8)) * 30 * kMillisecond));
    takers.world().kill_switch();
    takers.end();
  }
}

}  // namespace
}  // namespace netfold::tests

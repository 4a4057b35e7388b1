#include "switch/aggregation/lateness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace netfold::switching {
namespace {

constexpr std::uint16_t kWorld = 4;

class LatenessTest : public ::testing::Test {
 protected:
  // A chunk whose contributions come at these times, by rank.
  void chunk(std::uint32_t place, const std::vector<Nanoseconds>& at) {
    std::vector<std::pair<Nanoseconds, std::uint16_t>> order;
    for (std::uint16_t rank = 0; rank < at.size(); ++rank) order.emplace_back(at[rank], rank);
    std::ranges::sort(order);
    for (std::size_t i = 0; i < order.size(); ++i) {
      lateness_.on_contribution(order[i].second, place, i + 1 == order.size(), order[i].first);
    }
  }
  RankCounters of(std::uint16_t rank) { return lateness_.snapshot()[rank]; }

  Lateness lateness_{kWorld, 8};
};

TEST_F(LatenessTest, WaitsForTheLastOneSinceHalfOfTheOthersAreThere) {
  chunk(0, {1000, 5'000'000, 2000, 7'001'000});
  EXPECT_EQ(of(3).came_last, 1);
  EXPECT_EQ(of(3).waited_ns, 7'001'000 - 2000);
  EXPECT_EQ(of(3).pauses, 1);
  EXPECT_EQ(of(3).paused_ns, of(3).waited_ns);
  for (const std::uint16_t rank : {0, 1, 2}) EXPECT_EQ(of(rank).waited_ns, 0) << rank;
}

TEST_F(LatenessTest, CountsNoTimeTwice) {
  // A window of chunks is complete but for rank 3, which then sends one a microsecond.
  for (std::uint32_t place = 0; place < 8; ++place) {
    for (const std::uint16_t rank : {0, 1, 2}) lateness_.on_contribution(rank, place, false, 100);
  }
  for (std::uint32_t place = 0; place < 8; ++place) {
    lateness_.on_contribution(3, place, true, 50'000'100 + place * kMicrosecond);
  }
  EXPECT_EQ(of(3).came_last, 8);
  EXPECT_EQ(of(3).waited_ns, 50'007'000);
  EXPECT_EQ(of(3).pauses, 1) << "one for the tensor, then its packets flow";
  EXPECT_EQ(of(3).paused_ns, 50'000'000);
}

TEST_F(LatenessTest, ShortWaitsAreNoPauses) {
  Nanoseconds now = 0;
  for (int round = 0; round < 1000; ++round, now += kMillisecond) chunk(0, {now, now, now + kMillisecond / 2, now});
  EXPECT_EQ(of(2).came_last, 1000);
  EXPECT_EQ(of(2).waited_ns, 1000 * kMillisecond / 2);
  EXPECT_EQ(of(2).pauses, 0);
}

TEST_F(LatenessTest, ShardsWaitAtTheSameTime) {
  RankCounters sum{.came_last = 3, .waited_ns = 500, .pauses = 2, .paused_ns = 400, .lost = 1};
  sum += RankCounters{.came_last = 2, .waited_ns = 700, .pauses = 1, .paused_ns = 300, .lost = 4};
  EXPECT_EQ(sum.came_last, 5);
  EXPECT_EQ(sum.lost, 5);
  EXPECT_EQ(sum.waited_ns, 700);
  EXPECT_EQ(sum.pauses, 2);
  EXPECT_EQ(sum.paused_ns, 400);
}

}  // namespace
}  // namespace netfold::switching

// How bytes are shared out among connections (link/tcp/stripes.h).
#include "link/tcp/stripes.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/prng.h"

namespace netfold::link {
namespace {

// Against a table of every byte, in any order and with parts that come twice.
TEST(Arrivals, KnowWhichBytesAreWhole) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng random(seed);
    constexpr std::uint64_t kBytes = 400;
    std::vector<bool> has_come(kBytes + 1);
    Arrivals arrivals;
    std::uint64_t whole = 0;
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t from = random.below(kBytes),
                          to = from + random.below(std::min<std::uint64_t>(40, kBytes - from) + 1);
      arrivals.add({from, to});
      for (std::uint64_t byte = from; byte < to; ++byte) has_come[byte] = true;
      while (has_come[whole]) ++whole;
      ASSERT_EQ(arrivals.whole(), whole) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(Speed, IsKnownAfterEnoughBytesAndTime) {
  Speed speed;
  speed.note(0, 0);
  speed.note(1'000'000, 10 * kMillisecond);
  EXPECT_EQ(speed.bytes_s(), 0) << "a burst of 10 ms tells little";
  speed.note(4'000'000, 40 * kMillisecond);
  EXPECT_DOUBLE_EQ(speed.bytes_s(), 1e8);
  speed.note(4'100'000, 90 * kMillisecond);
  EXPECT_DOUBLE_EQ(speed.bytes_s(), 1e8) << "too few bytes";
  speed.note(6'000'000, 140 * kMillisecond);
  EXPECT_DOUBLE_EQ(speed.bytes_s(), (1e8 + 2e7) / 2);
}

// A queue at each, of bytes that leave at its speed: the shares are those of the speeds, and the queues end together.
TEST(Earliest, SharesByWhatEachCarries) {
  std::array<Way, 3> ways{{{0, 0, 400e6}, {1, 0, 100e6}, {2, 0, 50e6}}};
  std::array<std::uint64_t, 3> given{};
  for (int stripe = 0; stripe < 1100; ++stripe) {
    const std::size_t next = earliest(ways, kStripeBytesMax);
    ways[next].queued_bytes += kStripeBytesMax;
    given[next] += 1;
  }
  EXPECT_NEAR(static_cast<double>(given[0]), 800, 2);
  EXPECT_NEAR(static_cast<double>(given[1]), 200, 2);
  EXPECT_NEAR(static_cast<double>(given[2]), 100, 2);
}

TEST(Earliest, GivesALittleToTheFastestAlone) {
  const std::array<Way, 2> ways{{{0, 0, 10e6}, {1, 0, 100e6}}};
  EXPECT_EQ(earliest(ways, 1000), 1u);
}

TEST(Earliest, CountsAllAsEqualUntilTheirSpeedsAreKnown) {
  const std::array<Way, 2> ways{{{0, 1000, 10e6}, {1, 2000, 0}}};
  EXPECT_EQ(earliest(ways, 1000), 0u);
}

TEST(StripeHeader, RefusesWhatNoStripeHas) {
  EXPECT_TRUE((StripeHeader{7, 1}).is_valid());
  EXPECT_FALSE((StripeHeader{7, 0}).is_valid());
  EXPECT_FALSE((StripeHeader{7, kStripeBytesMax + 1}).is_valid());
  EXPECT_FALSE((StripeHeader{7, 1, 0}).is_valid());
  EXPECT_FALSE((StripeHeader{UINT64_MAX, 1}).is_valid());
}

}  // namespace
}  // namespace netfold::link

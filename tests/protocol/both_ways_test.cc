// A reduce-scatter loads the ways up to the switch, an all-gather those down. Each takes what the links allow, by
// itself and, each in a job of its own, both at the same time.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "protocol/star.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

using schedule::Collective;

constexpr std::uint16_t kBothWaysWorld = 8, kGathers = 0, kScatters = 1;  // the jobs
constexpr std::size_t kBothWaysElements = std::size_t{8} << 18;           // 8 MiB
constexpr Nanoseconds kBothWaysLimit = 60 * kSecond;

// The switch's own links are never the narrow ones.
StarOptions star_of(std::size_t queue_bytes) {
  return {.jobs = 2,
          .world = kBothWaysWorld,
          .shares_links = true,
          .switch_mbit_s = 20'000,
          .queue_bytes = queue_bytes,
          .seed = random_seed()};
}

// How many times longer it takes than one worker's link needs for a whole tensor. Both jobs start together.
double times_a_tensor(Star& star, bool scatters, bool gathers) {
  const Nanoseconds start = star.now();
  if (gathers) star.submit(kGathers, kBothWaysElements, Collective::kAllGather);
  if (scatters) star.submit(kScatters, kBothWaysElements, Collective::kReduceScatter);
  EXPECT_TRUE(star.run_until_done(kBothWaysLimit));
  Nanoseconds end = start;
  if (gathers) end = std::max(end, star.done_at(kGathers));
  if (scatters) end = std::max(end, star.done_at(kScatters));
  return to_seconds(end - start) / to_seconds(star.bound(kBothWaysElements));
}

// How long the two may take together: the first time, each later time, and on average. Where queues are short, each
// window shrinks now and then.
struct Queues {
  std::size_t size_bytes;
  double first, later, mean;
};

class BothWays : public ::testing::TestWithParam<Queues> {};
INSTANTIATE_TEST_SUITE_P(Of, BothWays,
                         ::testing::Values(Queues{512u << 10, 1.4, 1.25, 1.25}, Queues{128u << 10, 1.6, 1.6, 1.35},
                                           Queues{64u << 10, 1.6, 1.6, 1.35}, Queues{32u << 10, 1.6, 1.6, 1.4}),
                         [](const auto& queues) { return fmt::format("{}KiB", queues.param.size_bytes >> 10); });

TEST_P(BothWays, AreFullAlone) {
  const StarOptions options = star_of(GetParam().size_bytes);
  SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", options.seed));
  Star star(options);
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_LT(times_a_tensor(star, true, false), 1.1);
    EXPECT_LT(times_a_tensor(star, false, true), 1.1 * (kBothWaysWorld - 1) / kBothWaysWorld);
  }
}

// One behind the other they take 1 + 7/8 tensors, by ring 2 * 7/8; the links allow 1 + 1/8.
TEST_P(BothWays, AreFullAtTheSameTime) {
  const StarOptions options = star_of(GetParam().size_bytes);
  SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", options.seed));
  Star star(options);
  constexpr int kLater = 3;
  double sum = times_a_tensor(star, true, true);
  EXPECT_LT(sum, GetParam().first) << "the windows start";
  for (int repeat = 0; repeat < kLater; ++repeat) {
    const double times = times_a_tensor(star, true, true);
    EXPECT_LT(times, GetParam().later);
    sum += times;
  }
  EXPECT_LT(sum / (1 + kLater), GetParam().mean);
}

TEST(BothWaysOf, CarryEachByteOnce) {
  const StarOptions options = star_of(512 << 10);
  Star star(options);
  times_a_tensor(star, true, true);
  const std::size_t whole = kBothWaysElements * 4, part = whole / kBothWaysWorld;
  const link::LinkStats gathers = star.stats(kGathers, 3).link, scatters = star.stats(kScatters, 3).link;
  EXPECT_NEAR(static_cast<double>(scatters.sent_bytes), whole, 0.03 * whole);
  EXPECT_LT(gathers.sent_bytes, part + whole / 40) << "the own part, and headers";
}

}  // namespace
}  // namespace netfold::tests

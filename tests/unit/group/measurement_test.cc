// A measurement finds the rates of a network that the test knows: workers and two switches, the second twice as fast.
#include "group/via_both/measurement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace netfold::group {
namespace {

constexpr double kLink = 25e6, kAtSwitch = 3e6;  // bytes/s
constexpr std::size_t kSwitchesMeasured = 2;
constexpr Nanoseconds kSmallInSwitch = 200 * kMicrosecond, kSmallAmongRanks = 500 * kMicrosecond;

// The first collective of a kind takes this much longer.
constexpr Nanoseconds kCold = 40 * kMillisecond;

struct Found {
  Ways ways;
  double in_switch_bytes = 0, among_ranks_bytes = 0;
};

Found measure(int world, std::size_t size_bytes) {
  Found run;
  Measurement measurement(world, kSwitchesMeasured, false, size_bytes);
  Nanoseconds now = kSecond;
  std::optional<std::size_t> last = kSwitchesMeasured;
  while (!measurement.is_over()) {
    const auto at_switch = measurement.at_switch();
    const CollectiveRequest request = measurement.begin(now);
    EXPECT_TRUE(check(request));
    const bool gathers = request.collective == schedule::Collective::kAllGather;
    const double bytes = 4.0 * static_cast<double>(request.count) * (gathers ? world - 1 : 1);
    (at_switch ? run.in_switch_bytes : run.among_ranks_bytes) += bytes;
    const double rate = !at_switch ? kLink : *at_switch == 0 ? kAtSwitch : 2 * kAtSwitch;
    now += from_seconds(bytes / rate) + (at_switch ? kSmallInSwitch : kSmallAmongRanks);
    if (at_switch != last && !gathers && bytes < 2000) now += kCold;
    last = at_switch;
    measurement.end(now);
  }
  run.ways = measurement.ways();
  return run;
}

TEST(Measurement, FindsWhatEachWayCarries) {
  for (const int world : {2, 3, 8, 17}) {
    for (const std::size_t size_bytes : {std::size_t{100}, std::size_t{2} << 20, std::size_t{1} << 30}) {
      const Ways ways = measure(world, size_bytes).ways;
      EXPECT_NEAR(ways.link_bytes_s, kLink, 0.05 * kLink) << world << " ranks";
      EXPECT_NEAR(ways.switches[0].bytes_s, kAtSwitch, 0.05 * kAtSwitch) << world << " ranks";
      EXPECT_NEAR(ways.switches[1].bytes_s, 2 * kAtSwitch, 0.1 * kAtSwitch) << world << " ranks";
      for (const auto& each : ways.switches) EXPECT_LT(each.small, 3 * kSmallInSwitch);
      EXPECT_LT(ways.small_among_ranks, 2 * kSmallAmongRanks);
    }
  }
}

TEST(Measurement, IsShortBesideTheTensor) {
  for (const std::size_t mebibytes : {1, 2, 4, 16, 64}) {
    const double size = static_cast<double>(mebibytes << 20);
    const Found run = measure(8, mebibytes << 20);
    EXPECT_LT(run.in_switch_bytes / kSwitchesMeasured, 0.4 * size);
    EXPECT_LT(run.among_ranks_bytes, 1.12 * size);
  }
}

TEST(Measurement, SumsNothingButZeros) {
  Measurement measurement(4, kSwitchesMeasured, false, 1 << 20);
  while (!measurement.is_over()) {
    const CollectiveRequest request = measurement.begin(0);
    const std::size_t parts = request.collective == schedule::Collective::kAllGather ? 4 : 1;
    const auto* const elements = static_cast<const float*>(request.in);
    EXPECT_TRUE(std::all_of(elements, elements + request.count * parts, [](float x) { return x == 0; }));
    measurement.end(1);
  }
  EXPECT_EQ(measurement.at_switch(), std::nullopt) << "it is over";
}

}  // namespace
}  // namespace netfold::group

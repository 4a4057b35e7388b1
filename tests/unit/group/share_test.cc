// The share against a model of a network: a switch's link, workers' links, and what the parts then take.
#include "group/via_both/share.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace netfold::group {
namespace {

constexpr double kSize = 16e6, kLink = 25e6;  // bytes, bytes/s

struct Network {
  int world = 8;
  double link = kLink, at_switch = kLink;  // bytes/s: of a worker, of the switch for all workers together
  Nanoseconds waits = 0;                   // for another rank, before anything moves

  double sent() const { return 2.0 * (world - 1) / world; }
  double each() const { return std::min(link, at_switch / world); }
  // Of the time that the best share takes.
  double best_s() const {
    const double x = std::min(1.0, sent() / (link / each() + sent() - 1));
    return kSize * (x + sent() * (1 - x)) / link;
  }
  ShareEstimate::Outcome run(const Share& share) const {
    const double x = share.of_switch;
    const double in_switch = kSize * x / each();
    const double alone = kSize * sent() * (1 - x) / link;
    const double together = kSize * (x + sent() * (1 - x)) / link;
    // Paced, it may be slower than the link allows.
    const double paced = kSize * sent() * (1 - x) / std::max(share.link_bytes_s, 1.0);
    const double among_ranks = share.in_turn ? alone : share.link_bytes_s > 0 ? std::max(together, paced) : together;
    return {kSize, x > 0 ? waits + from_seconds(in_switch) : 0, x < 1 ? waits + from_seconds(among_ranks) : 0};
  }
  double time_s(const Share& share) const {
    const auto [size, in_switch, among_ranks] = run(share);
    return to_seconds(share.in_turn ? in_switch + among_ranks : std::max(in_switch, among_ranks));
  }
};

// The share of a tensor is decided when the one before it begins.
class Training {
 public:
  explicit Training(int world) : estimate_(world), next_(estimate_.next()) {}

  double step(const Network& network) {
    const Share share = next_;
    next_ = estimate_.next();
    estimate_.note(tensor_++, share, network.run(share));
    return network.time_s(share);
  }
  ShareEstimate& estimate() { return estimate_; }

 private:
  ShareEstimate estimate_;
  Share next_;
  std::uint64_t tensor_ = 0;
};

TEST(Share, IsTheBestWithinThreeTensorsForAnySwitch) {
  for (const int world : {2, 4, 8, 16}) {
    for (const double times : {0.25, 1.0, 2.0, 4.0, 8.0, 100.0}) {
      const Network network{.world = world, .at_switch = times * kLink};
      Training training(world);
      for (int tensor = 0; tensor < 3; ++tensor) {
        EXPECT_LT(training.step(network), (times < 1 ? 6 : 2.2) * network.best_s())
            << world << " ranks, switch of " << times;
      }
      for (int tensor = 3; tensor < 20; ++tensor) {
        EXPECT_LT(training.step(network), 1.05 * network.best_s()) << world << " ranks, switch of " << times;
      }
    }
  }
}

TEST(Share, FollowsASwitchThatSlowsDownAndRecovers) {
  Training training(8);
  Network network{.at_switch = 4 * kLink};
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  network.at_switch = kLink;
  for (int tensor = 0; tensor < 4; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.1 * network.best_s());
  network.at_switch = 4 * kLink;
  for (int tensor = 0; tensor < 9; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.1 * network.best_s());
}

TEST(Share, DoesNotMindRanksThatWaitForEachOther) {
  Training training(8);
  Network network{.at_switch = 2 * kLink};
  training.step(network);
  network.waits = kSecond;
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  network.waits = 0;
  EXPECT_LT(training.step(network), 1.1 * network.best_s());
}

TEST(Share, MeasuresAgainWhenTheWorkersLinkHasChanged) {
  Training training(8);
  Network network{.at_switch = 2 * kLink};
  for (int tensor = 0; tensor < 20; ++tensor) training.step(network);
  network.link = kLink / 4;
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.1 * network.best_s());
  EXPECT_NEAR(training.estimate().link_bytes_s(), network.link, 0.01 * network.link);
}

TEST(Share, LeavesRoomOnTheLinkForTheSwitch) {
  Training training(8);
  const Network network{.at_switch = 4 * kLink};
  for (int tensor = 0; tensor < 5; ++tensor) training.step(network);
  const Share share = training.estimate().next();
  EXPECT_NEAR(share.pace_bytes_s, kLink / 2, 0.02 * kLink);
  EXPECT_NEAR(share.link_bytes_s, kLink, 0.01 * kLink);
  EXPECT_FALSE(share.in_turn);
}

TEST(Share, SendsSmallTensorsWhereTheyAreFaster) {
  Training slow(8), fast(8);
  for (int tensor = 0; tensor < 5; ++tensor) {
    slow.step({.at_switch = kLink});
    fast.step({.at_switch = 8 * kLink});
  }
  EXPECT_FALSE(slow.estimate().next().small_to_switch);
  EXPECT_TRUE(fast.estimate().next().small_to_switch);
}

}  // namespace
}  // namespace netfold::group

// The share against a model of a network: a switch's link, workers' links, and what the parts then take.
#include "group/via_both/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace netfold::group {
namespace {

constexpr double kSharedSize = 16e6, kSharedLink = 25e6;  // bytes, bytes/s

struct Network {
  int world = 8;
  double link = kSharedLink;                        // bytes/s: of a worker
  std::vector<double> at_switches = {kSharedLink};  // of each switch for all workers together
  double ranks_reach = 1;                           // of their pace, when a switch works as well
  double overloaded = 1;                            // part of its rate that a link reaches to which more is sent
  bool is_beside_rank = false;                      // the switch: its packets to and from the others use a rank's link
  double ranks_late = 1;                            // times the ranks' part takes longer
  Nanoseconds waits = 0;                            // for another rank, before anything moves
  Nanoseconds small_in_switch = 100 * kMicrosecond, small_among_ranks = 100 * kMicrosecond;

  double sent() const { return 2.0 * (world - 1) / world; }
  double each(std::size_t one) const { return std::min(link, at_switches[one] / world); }
  // Of the time that the best share takes.
  double best_s() const {
    double all = 0;
    for (std::size_t one = 0; one < at_switches.size(); ++one) all += each(one);
    const double x = std::min(1.0, sent() / (link / std::min(link, all) + sent() - 1));
    return kSharedSize * (x + sent() * (1 - x)) / link;
  }
  // While switches have work the ranks leave them room on the link. The last part has the link to itself.
  ShareEstimate::Outcome run(const Share& share) const {
    const std::size_t switches = at_switches.size();
    std::vector<double> left;  // bytes: through each switch, then among the ranks
    for (const double part : share.of_switches) left.push_back(kSharedSize * part);
    left.push_back(kSharedSize * sent() * (1 - share.of_all_switches()));
    std::vector<double> ended(switches + 1), rates(switches + 1);
    for (double now = 0; std::ranges::any_of(left, [](double bytes) { return bytes > 0; });) {
      const bool with_ranks = left.back() > 0;
      const double room = with_ranks ? std::max(link - share.pace_bytes_s, link / 2) : link;
      double wanted = 0;
      for (std::size_t one = 0; one < switches; ++one) wanted += left[one] > 0 ? each(one) : 0;
      for (std::size_t one = 0; one < switches; ++one) {
        rates[one] = left[one] > 0 ? each(one) * std::min(1.0, room / wanted) : 0;
      }
      const double to_switches = std::min(wanted, room);
      const double pace = wanted > 0 ? ranks_reach * share.pace_bytes_s : share.link_bytes_s;
      rates.back() = std::min({link - to_switches, pace, link});
      if (with_ranks && to_switches + pace > 1.01 * link) rates.back() *= overloaded;
      if (is_beside_rank) {
        const double load = rates.back() + (world - 1) * rates.front();
        for (double& rate : rates) rate *= std::min(1.0, link / load);
      }
      double step_s = 1e9;
      for (std::size_t way = 0; way <= switches; ++way) {
        if (left[way] > 0) step_s = std::min(step_s, left[way] / rates[way]);
      }
      now += step_s;
      for (std::size_t way = 0; way <= switches; ++way) {
        if (left[way] <= 0) continue;
        left[way] -= rates[way] * step_s;
        if (left[way] < 1e-3) left[way] = 0;
        ended[way] = now;
      }
    }
    const auto took = [&](double end_s) { return end_s > 0 ? waits + from_seconds(end_s) : 0; };
    ended.back() *= ranks_late;
    ShareEstimate::Outcome outcome{.size_bytes = kSharedSize, .in_switches = {}, .among_ranks = took(ended.back())};
    for (std::size_t one = 0; one < switches; ++one) outcome.in_switches.push_back(took(ended[one]));
    outcome.whole = std::max(std::ranges::max(outcome.in_switches), outcome.among_ranks);
    return outcome;
  }
  double time_s(const Share& share) const {
    const auto outcome = run(share);
    return to_seconds(std::max(std::ranges::max(outcome.in_switches), outcome.among_ranks));
  }
};

// A short measurement does not find quite the rate that a link carries.
constexpr double kMeasuredLink = 0.95, kMeasuredSwitch = 0.7;

// The share of a tensor is decided when the one before it begins.
class SharingTraining {
 public:
  explicit SharingTraining(int world) : estimate_(world), next_(estimate_.next()) {}

  double step(const Network& network) {
    if (!next_.is_measured) {
      ++measurements_;
      Ways ways{
          .switches = {}, .link_bytes_s = kMeasuredLink * network.link, .small_among_ranks = network.small_among_ranks};
      for (std::size_t one = 0; one < network.at_switches.size(); ++one) {
        ways.switches.push_back({kMeasuredSwitch * network.each(one), network.small_in_switch});
      }
      estimate_.measured(ways);
      next_ = estimate_.next();
    }
    const Share share = next_;
    next_ = estimate_.next();
    estimate_.note(tensor_++, share, network.run(share));
    last_ = share;
    return network.time_s(share);
  }
  const Share& last() const { return last_; }
  ShareEstimate& estimate() { return estimate_; }
  int measurements() const { return measurements_; }

 private:
  int measurements_ = 0;
  ShareEstimate estimate_;
  Share next_, last_;
  std::uint64_t tensor_ = 0;
};

TEST(Share, IsNearlyTheBestFromTheFirstTensorForAnySwitch) {
  for (const int world : {2, 4, 8, 16}) {
    for (const double times : {0.25, 1.0, 2.0, 4.0, 8.0, 100.0}) {
      const Network network{.world = world, .at_switches = {times * kSharedLink}};
      SharingTraining training(world);
      constexpr int kTensors = 40;
      double sum = 0;
      for (int tensor = 0; tensor < kTensors; ++tensor) {  // some of them try whether more is possible
        const double time_s = training.step(network);
        EXPECT_LT(time_s, 1.3 * network.best_s()) << world << " ranks, switch of " << times << ", tensor " << tensor;
        sum += time_s;
      }
      EXPECT_LT(sum, 1.07 * kTensors * network.best_s()) << world << " ranks, switch of " << times;
      EXPECT_EQ(training.measurements(), 1);
    }
  }
}

TEST(Share, DividesTheFirstTensorHoweverSlowTheSwitch) {
  ShareEstimate estimate(8);
  estimate.measured({.switches = {{.bytes_s = 1}}, .link_bytes_s = kSharedLink});
  EXPECT_GT(estimate.next().of_all_switches(), 0);
}

TEST(Share, FollowsASwitchThatSlowsDownAndRecovers) {
  SharingTraining training(8);
  Network network{.at_switches = {4 * kSharedLink}};
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  network.at_switches[0] = kSharedLink;
  for (int tensor = 0; tensor < 4; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.15 * network.best_s());
  network.at_switches[0] = 4 * kSharedLink;
  for (int tensor = 0; tensor < 9; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.15 * network.best_s());
}

TEST(Share, DividesByWhatEachOfSeveralSwitchesTakes) {
  for (const auto& at_switches :
       {std::vector{2.0, 2.0}, {4.0, 1.0}, {4.0, 4.0}, {1.0, 2.0, 3.0}, {8.0, 0.5}, std::vector(8, 1.0)}) {
    Network network;
    network.at_switches.clear();
    for (const double times : at_switches) network.at_switches.push_back(times * kSharedLink);
    SharingTraining training(8);
    for (int tensor = 0; tensor < 5; ++tensor) training.step(network);
    double sum = 0;
    constexpr int kTensors = 40;
    for (int tensor = 0; tensor < kTensors; ++tensor) sum += training.step(network);
    EXPECT_LT(sum, 1.07 * kTensors * network.best_s()) << ::testing::PrintToString(at_switches);
  }
}

TEST(Share, TakesFromASwitchThatSlowsDownAndGivesToTheOthers) {
  SharingTraining training(8);
  Network network{.at_switches = {4 * kSharedLink, 4 * kSharedLink}};
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  network.at_switches[1] = kSharedLink / 50;
  for (int tensor = 0; tensor < 6; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.3 * network.best_s());
  EXPECT_LT(training.estimate().next().of_switches[1], 0.01);
  network.at_switches[1] = 4 * kSharedLink;
  for (int tensor = 0; tensor < 50; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.15 * network.best_s());
}

TEST(Share, DoesNotMindRanksThatWaitForEachOther) {
  SharingTraining training(8);
  Network network{.at_switches = {2 * kSharedLink}};
  training.step(network);
  network.waits = kSecond;
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  network.waits = 0;
  EXPECT_LT(training.step(network), 1.1 * network.best_s());
}

TEST(Share, DoesNotTakeSlowRanksForAFastSwitch) {
  SharingTraining training(8);
  Network network{.at_switches = {2 * kSharedLink}, .ranks_reach = 0.7};
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 40; ++tensor) {
    training.step(network);
    EXPECT_LT(training.estimate().ways().switches_bytes_s(), 1.05 * network.each(0)) << tensor;
  }
}

// A link to which more is sent than it carries loses packets.
TEST(Share, KeepsTheRateOfALinkThatSuffersFromProbes) {
  SharingTraining training(8);
  const Network network{.at_switches = {4 * kSharedLink}, .overloaded = 0.8};
  for (int tensor = 0; tensor < 1000; ++tensor) training.step(network);
  EXPECT_GT(training.estimate().ways().link_bytes_s, 0.94 * network.link);
}

TEST(Share, ChangesLittleWherePartsEndLateByAccident) {
  SharingTraining training(8);
  Network network{.at_switches = {4 * kSharedLink}};
  for (int tensor = 0; tensor < 40; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 400; ++tensor) {
    network.ranks_late = tensor % 3 == 0 ? 1.2 : tensor % 3 == 1 ? 0.85 : 1;  // a late one makes the next look fast
    training.step(network);
    EXPECT_NEAR(training.estimate().ways().switches_bytes_s(), network.each(0), 0.07 * network.each(0)) << tensor;
  }
}

TEST(Share, FindsSoonThatASwitchHasRecoveredAfterALongTime) {
  SharingTraining training(8);
  Network network{.at_switches = {kSharedLink}};
  for (int tensor = 0; tensor < 500; ++tensor) training.step(network);
  network.at_switches[0] = 4 * kSharedLink;
  int tensors = 0;
  while (training.step(network) > 1.15 * network.best_s()) ASSERT_LT(++tensors, 20);
}

TEST(Share, FindsSoonThatALinkThatWasCutIsRestored) {
  for (const int cut_for : {20, 61, 103}) {
    SharingTraining training(8);
    Network network{.at_switches = {4 * kSharedLink}};
    for (int tensor = 0; tensor < 20; ++tensor) training.step(network);
    network.at_switches[0] = kSharedLink;
    for (int tensor = 0; tensor < cut_for; ++tensor) training.step(network);
    network.at_switches[0] = 4 * kSharedLink;
    int tensors = 0;
    while (training.step(network) > 1.15 * network.best_s()) ASSERT_LT(++tensors, 8) << cut_for;
  }
}

// The ranks saw it before the tensor was over.
TEST(Share, FollowsASwitchThatWasSeenToSlowDown) {
  SharingTraining training(8);
  Network network{.at_switches = {4 * kSharedLink}};
  for (int tensor = 0; tensor < 20; ++tensor) training.step(network);
  network.at_switches[0] = kSharedLink;
  training.estimate().slow_down(0, 0.9 * network.each(0));
  training.step(network);  // it was divided before
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.15 * network.best_s()) << tensor;
}

TEST(Share, MeasuresAgainWhenTheWorkersLinkHasChanged) {
  SharingTraining training(8);
  Network network{.at_switches = {2 * kSharedLink}};
  for (int tensor = 0; tensor < 20; ++tensor) training.step(network);
  network.link = kSharedLink / 4;
  for (int tensor = 0; tensor < 10; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.1 * network.best_s());
  EXPECT_NEAR(training.estimate().ways().link_bytes_s, network.link, 0.06 * network.link);
}

TEST(Share, DoesWithoutASwitchThatMakesTheRanksSlower) {
  SharingTraining training(4);
  Network network{.world = 4, .at_switches = {4.0 / 3 * kSharedLink}, .is_beside_rank = true};
  const double ranks_s = kSharedSize * network.sent() / network.link;
  for (int tensor = 0; tensor < 40; ++tensor) training.step(network);
  double sum = 0;
  constexpr int kTensors = 400;
  int with = 0;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    sum += training.step(network);
    with += training.last().of_all_switches() > 0 ? 1 : 0;
  }
  EXPECT_LT(sum, 1.05 * kTensors * ranks_s);
  EXPECT_GT(with, 0);  // it looks whether the switch has become better
  network.is_beside_rank = false;
  for (int tensor = 0; tensor < 300; ++tensor) training.step(network);
  for (int tensor = 0; tensor < 10; ++tensor) EXPECT_LT(training.step(network), 1.1 * network.best_s());
}

// Others use the links, too, so tensors take longer than the ranks would need over free links.
TEST(Share, SeldomDoesWithoutASwitchThatHelpsThoughLinksAreBusy) {
  SharingTraining training(8);
  Network network{.at_switches = {4 * kSharedLink}};
  training.step(network);
  network.waits = from_seconds(0.6 * network.best_s());
  constexpr int kTensors = 400;
  int without = 0;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    training.step(network);
    without += training.last().of_all_switches() == 0 ? 1 : 0;
  }
  EXPECT_GT(without, 0);
  EXPECT_LT(without, kTensors / 10);
}

TEST(Share, LeavesRoomOnTheLinkForTheSwitch) {
  SharingTraining training(8);
  const Network network{.at_switches = {4 * kSharedLink}};
  for (int tensor = 0; tensor < 5; ++tensor) training.step(network);
  const Share share = training.estimate().next();
  EXPECT_NEAR(share.pace_bytes_s, kSharedLink / 2, 0.08 * kSharedLink);
  EXPECT_NEAR(share.link_bytes_s, kSharedLink, 0.06 * kSharedLink);
  EXPECT_TRUE(share.is_measured);
}

TEST(Share, SendsSmallTensorsWhereTheyAreFaster) {
  const auto classes_at = [](const Network& network) {
    SharingTraining training(8);
    for (int tensor = 0; tensor < 5; ++tensor) training.step(network);
    return training.estimate().next().small_to_switch;
  };
  const auto is_set = [](std::uint32_t classes, std::size_t size_bytes) {
    return ((classes >> std::bit_width(size_bytes)) & 1) != 0;
  };
  const std::uint32_t slow = classes_at({.at_switches = {kSharedLink}}),
                      fast = classes_at({.at_switches = {8 * kSharedLink}});
  EXPECT_EQ(slow, 0U);
  for (const std::size_t size_bytes : {100, 10'000, 1'000'000}) EXPECT_TRUE(is_set(fast, size_bytes)) << size_bytes;
  // One that answers soon and carries little is for small tensors only; one far away for large ones.
  const std::uint32_t near = classes_at({.at_switches = {kSharedLink}, .small_among_ranks = 10 * kMillisecond});
  EXPECT_TRUE(is_set(near, 1000));
  EXPECT_FALSE(is_set(near, 500'000));
  const std::uint32_t far = classes_at({.at_switches = {8 * kSharedLink}, .small_in_switch = 5 * kMillisecond});
  EXPECT_FALSE(is_set(far, 1000));
  EXPECT_TRUE(is_set(far, 500'000));
}

}  // namespace
}  // namespace netfold::group

// A group that sums both ways outlives its switch, with the same bits: a switch that dies, pauses, reaches a rank no
// more, or becomes slow, at times that a seed draws.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/prng.h"
#include "protocol/both_world.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

using numbers::Format;
using schedule::Collective;

constexpr std::uint64_t kOutageSeeds = 4;
constexpr Nanoseconds kRoundMax = 4 * BothWorld::kTimeout;  // of virtual time
constexpr Nanoseconds kSoon = 200 * kMillisecond, kOutageMax = 8 * kSecond;
constexpr std::size_t kElementsMax = 700'000;
constexpr double kNarrowest = 1e6;              // bytes/s of a slow switch: it is measured with 1 MB of each rank
constexpr Nanoseconds kFormed = 5 * kSecond;    // the group, before anything happens
constexpr Nanoseconds kReturns = 30 * kSecond;  // all ranks join a switch again that is there

testing::Weather draw_outage_weather(Prng& prng) {
  const auto sometimes = [&](double most) { return prng.chance(0.5) ? most * prng.unit() : 0; };
  testing::Weather weather;
  weather.loss = sometimes(0.01);
  weather.duplicate = sometimes(0.05);
  weather.hold = sometimes(0.05);
  weather.late = sometimes(0.01);
  weather.full = sometimes(0.1);
  return weather;
}

// A group, and what a seed does to its switches.
class Outages {
 public:
  explicit Outages(std::uint64_t seed)
      : prng_(seed),
        ranks_(static_cast<std::uint16_t>(2 + prng_.below(7))),
        world_(ranks_, 1e6 * std::exp2(prng_.below(7)), seed, draw_outage_weather(prng_), 1 + prng_.below(3)) {
    if (prng_.chance(0.5)) world_.hand_over_one_by_one();
    EXPECT_TRUE(world_.run_for(kFormed));
  }

  // Some collectives, and something that happens meanwhile. An error, or "".
  std::string round() {
    submit_some();
    if (!world_.run_for(draw(kSoon))) return failure();
    const Nanoseconds lasts = draw(kOutageMax);
    const int rank = static_cast<int>(prng_.below(ranks_));
    const std::size_t at = prng_.below(world_.switches());
    const auto goes_on = [&] {
      if (!world_.run_for(lasts / 2)) return false;
      if (!is_ending_) submit_some();
      return world_.run_for(lasts / 2);
    };
    const bool is_outward = prng_.chance(0.5);
    bool is_well = true;
    switch (prng_.below(10)) {
      case 0:
      case 1:
      case 2:
        world_.kill_switch(at);
        is_well = goes_on();
        world_.start_switch(at);
        break;
      case 3: world_.pause_switch(lasts, at); break;
      case 4: world_.pause(rank, lasts); break;
      case 5:
      case 6:
        world_.block(rank, is_outward, true, at);
        is_well = goes_on();
        world_.block(rank, is_outward, false, at);
        break;
      case 7:
      case 8:
        world_.narrow_switch(kNarrowest * std::exp2(prng_.below(8)), at);
        is_well = goes_on();
        world_.widen_switch(at);
        break;
      default: break;
    }
    return is_well ? results() : failure();
  }

  // The switch is there again, and stays: all ranks take it back.
  std::string calm() {
    if (!world_.run_for(kReturns)) return failure();
    for (int i = 0; i < 4; ++i) {  // words travel with tensors
      world_.submit({.count = kElementsMax});
      if (const std::string error = results(); !error.empty()) return error;
    }
    const auto lost = world_.counters("lost_switches");
    const bool is_back = std::ranges::all_of(lost, [](std::uint64_t each) { return each == 0; });
    return is_back ? "" : "the switch is not taken back";
  }

  // Scripts that end with their last sum, and one more thing that happens meanwhile.
  std::string end() {
    is_ending_ = true;
    world_.leave_when_done();
    if (const std::string error = round(); !error.empty()) return error;
    return world_.run_until_left(kRoundMax) ? "" : failure();
  }

  std::uint64_t rounds() { return 2 + prng_.below(8); }

 private:
  void submit_some() {
    for (std::uint64_t count = 1 + prng_.below(12); count > 0; --count) world_.submit(draw_request());
  }
  std::string results() {
    if (!world_.run_until_done(kRoundMax)) return failure();
    const int wrong = world_.wrong_results();
    return wrong > 0 ? fmt::format("{} wrong results", wrong) : "";
  }
  Nanoseconds draw(Nanoseconds most) {  // often short
    return static_cast<Nanoseconds>(static_cast<double>(most) * std::pow(prng_.unit(), 3));
  }
  std::string failure() const { return world_.failure() ? world_.failure()->message : "it takes too long"; }

  group::CollectiveRequest draw_request() {
    constexpr std::array kCollectives{Collective::kAllReduce, Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather};
    constexpr std::array kFormats{Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp};
    group::CollectiveRequest request;
    request.collective = kCollectives[prng_.below(kCollectives.size())];
    const std::size_t most = request.collective == Collective::kAllReduce ? kElementsMax : kElementsMax / ranks_;
    request.count = prng_.chance(0.6) ? prng_.below(2000) : prng_.below(most);
    if (request.collective != Collective::kAllGather) request.format = kFormats[prng_.below(kFormats.size())];
    request.average = request.collective == Collective::kAllReduce && prng_.chance(0.3);
    return request;
  }

  Prng prng_;
  const std::uint16_t ranks_;
  BothWorld world_;
  bool is_ending_ = false;
};

TEST(SwitchOutages, EndNothingAndChangeNoBit) {
  for (const std::uint64_t seed : random_seeds(kOutageSeeds)) {
    SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
    Outages outages(seed);
    std::string error;
    for (std::uint64_t rounds = outages.rounds(); error.empty() && rounds > 0; --rounds) error = outages.round();
    if (error.empty()) error = outages.calm();
    if (error.empty()) error = outages.end();
    ASSERT_EQ(error, "");
  }
}

// A group that has divided a first tensor, and two of its ranks: one is to lack a sum that the other one has.
struct AheadAndBehind {
  explicit AheadAndBehind(std::uint64_t seed)
      : prng(seed), ranks(static_cast<std::uint16_t>(2 + prng.below(7))), world(ranks, 1e7, seed) {
    is_ready = world.run_for(kFormed);
    world.submit({.count = kElementsMax});
    is_ready = is_ready && world.run_until_done(kRoundMax);
    behind = static_cast<int>(prng.below(ranks));
    ahead = (behind + 1) % ranks;
  }
  std::string failure() const { return world.failure() ? world.failure()->message : "it takes too long"; }

  Prng prng;
  const std::uint16_t ranks;
  BothWorld world;
  bool is_ready = false;
  int behind = 0, ahead = 0;
};

// The script of one rank has the sum, and hands the next tensor over. That of another one lacks it, and hands over
// nothing until it has it.
TEST(SwitchOutages, ARankWithoutASumWaitsForNoneThatHasItAndHasGoneOn) {
  for (const std::uint64_t seed : random_seeds(kOutageSeeds)) {
    SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
    AheadAndBehind two(seed);
    ASSERT_TRUE(two.is_ready);
    two.world.hand_over_one_by_one();
    for (int i = 0; i < 8; ++i) two.world.submit({.count = kElementsMax});
    if (!two.world.run_until_ahead(two.ahead, two.behind, kRoundMax)) continue;
    two.world.kill_switch();
    for (int rank = 0; rank < two.ranks; ++rank) two.world.block(rank, false, true);
    EXPECT_TRUE(two.world.run_until_done(kRoundMax)) << two.failure();
    EXPECT_EQ(two.world.wrong_results(), 0);
  }
}

// A script that ends when it has its last sum, while another rank lacks that sum and hears nothing from their switch,
// which may die, too.
TEST(SwitchOutages, ARankThatLeavesIsThereForThoseThatLackASum) {
  for (const std::uint64_t seed : random_seeds(kOutageSeeds)) {
    SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
    AheadAndBehind two(seed);
    ASSERT_TRUE(two.is_ready);
    two.world.block(two.behind, false, true);
    two.world.leave_when_done();
    two.world.submit({.count = kElementsMax / 64});
    if (!two.world.run_until_ahead(two.ahead, two.behind, kRoundMax)) continue;
    if (two.prng.chance(0.5)) two.world.kill_switch();
    EXPECT_TRUE(two.world.run_until_left(kRoundMax)) << two.failure();
    EXPECT_EQ(two.world.wrong_results(), 0);
  }
}

}  // namespace
}  // namespace netfold::tests

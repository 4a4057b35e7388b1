// Which way reduce-scatters and all-gathers take, against a model of what each way costs.
#include "group/via_both/one_way_choice.h"

#include <gtest/gtest.h>

#include <array>

namespace netfold::group {
namespace {

constexpr Nanoseconds kTensor = 700 * kMillisecond;  // a worker's link carries a tensor in this time
constexpr std::size_t kBytes = 8 << 20;

// Steps of a training. `slower`: how many times longer than on a worker's link a tensor takes at the switch.
class ShardedTraining {
 public:
  explicit ShardedTraining(int world, double slower = 1) : world_(world), slower_(slower), choice_(world) {}

  void run_alone(bool is_scatter) {
    const Ticket ticket = start(is_scatter);
    now_ += time_of(is_scatter ? 1 : part(world_ - 1), part(world_ - 1));
    choice_.end(ticket, now_);
    now_ += kTensor;
  }
  // A reduce-scatter behind an all-gather, on their way at the same time.
  void run_both() {
    const std::array tickets{start(false), start(true)};
    if (choice_.wants_switch()) {
      now_ += time_of(part(world_ + 1), 0);
      for (const Ticket each : tickets) choice_.end(each, now_);
    } else {
      for (const Ticket each : tickets) {
        now_ += time_of(0, part(world_ - 1));
        choice_.end(each, now_);
      }
    }
    now_ += kTensor;
  }
  void set_slower(double times) { slower_ = times; }
  bool uses_switch() const { return choice_.wants_switch(); }
  bool overlaps() const { return choice_.overlaps(); }

 private:
  double part(int parts) const { return static_cast<double>(parts) / world_; }
  Nanoseconds time_of(double in_switch, double among_ranks) const {
    const double tensors = choice_.wants_switch() ? in_switch * slower_ : among_ranks;
    return static_cast<Nanoseconds>(tensors * static_cast<double>(kTensor));
  }
  Ticket start(bool is_scatter) {
    choice_.hand_over(++ticket_, is_scatter, kBytes, now_);
    choice_.begin(ticket_, choice_.wants_switch());
    return ticket_;
  }

  int world_;
  double slower_;
  OneWayChoice choice_;
  Nanoseconds now_ = kSecond;
  Ticket ticket_ = 0;
};

// Also where a switch is slower: among the ranks it matters, too.
TEST(OneWayChoice, KnowsWhetherTheyOverlap) {
  ShardedTraining training(8, 4);
  for (int i = 0; i < 20; ++i) training.run_alone(true);
  EXPECT_FALSE(training.overlaps());
  for (int i = 0; i < 20; ++i) {
    training.run_both();
    EXPECT_EQ(training.overlaps(), i >= 3);
  }
  for (int i = 0; i < 5; ++i) training.run_alone(true);
  EXPECT_FALSE(training.overlaps());
}

TEST(OneWayChoice, TakesTheSwitchWhereTheyRunTogetherAndLeavesItWhereNot) {
  ShardedTraining training(8);
  for (int i = 0; i < 20; ++i) {
    training.run_alone(true);
    training.run_alone(false);
    EXPECT_FALSE(training.uses_switch());
  }
  for (int i = 0; i < 4; ++i) training.run_both();
  EXPECT_TRUE(training.uses_switch());
  for (int i = 0; i < 50; ++i) training.run_both();
  EXPECT_TRUE(training.uses_switch());
  for (int i = 0; i < 12; ++i) training.run_alone(true);
  EXPECT_FALSE(training.uses_switch());
}

// FSDP: in the forward pass all-gathers by themselves, in the backward pass beside reduce-scatters.
TEST(OneWayChoice, KeepsTheSwitchThroughForwardPasses) {
  ShardedTraining training(8);
  for (int step = 0; step < 10; ++step) {
    for (int layer = 0; layer < 5; ++layer) training.run_alone(false);
    for (int layer = 0; layer < 4; ++layer) training.run_both();
    training.run_alone(true);
    EXPECT_TRUE(training.uses_switch()) << "step " << step;
  }
}

TEST(OneWayChoice, LeavesASwitchThatIsSlowerAndTriesItAgainLater) {
  ShardedTraining training(8, 2);
  int tries = 0, pairs_in_switch = 0;
  for (int i = 0; i < 400; ++i) {
    const bool before = training.uses_switch();
    training.run_both();
    tries += training.uses_switch() && !before ? 1 : 0;
    pairs_in_switch += training.uses_switch() ? 1 : 0;
  }
  EXPECT_GE(tries, 2);
  EXPECT_LE(pairs_in_switch, 40);
}

// In the forward pass only all-gathers run, and end the try.
TEST(OneWayChoice, LeavesASwitchThatIsSlowerInTheForwardPass) {
  ShardedTraining training(8, 2);
  int tries = 0, gathers_in_switch = 0;
  for (int step = 0; step < 100; ++step) {
    for (int layer = 0; layer < 10; ++layer) {
      gathers_in_switch += training.uses_switch() ? 1 : 0;
      training.run_alone(false);
    }
    const bool before = training.uses_switch();
    for (int layer = 0; layer < 4; ++layer) training.run_both();
    tries += training.uses_switch() && !before ? 1 : 0;
  }
  EXPECT_GE(tries, 2);
  EXPECT_LE(gathers_in_switch, 6 * tries);
}

// A noisy network: an all-gather now and then takes long in a switch that is fast.
TEST(OneWayChoice, StaysWithASwitchWhereOneAllGatherIsSlow) {
  ShardedTraining training(8);
  for (int step = 0; step < 10; ++step) {
    for (int layer = 0; layer < 10; ++layer) {
      training.set_slower(layer == 5 ? 2 : 1);
      training.run_alone(false);
    }
    training.set_slower(1);
    for (int layer = 0; layer < 4; ++layer) training.run_both();
    EXPECT_TRUE(training.uses_switch()) << "step " << step;
  }
}

// Of three ranks, both together load a link through the switch as much as among the ranks.
TEST(OneWayChoice, LeavesSmallWorldsAmongTheRanks) {
  ShardedTraining training(3);
  for (int i = 0; i < 40; ++i) training.run_both();
  EXPECT_FALSE(training.uses_switch());
}

}  // namespace
}  // namespace netfold::group

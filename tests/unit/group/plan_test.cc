// Plans: what a transfer waits for, and what it follows.
#include "group/via_peers/plan.h"

#include <gtest/gtest.h>

namespace netfold::group {
namespace {

using schedule::Action;

schedule::Steps halving_doubling_of_four() {
  return *schedule::make({.algorithm = {.name = "halving-doubling"}, .world = 4, .rank = 1, .count = 64});
}

TEST(Plan, SwapsThatTakeTurnsFollowTheSwapBefore) {
  const auto steps = halving_doubling_of_four();
  const Plan plan = make_plan(steps, 4, 1, 64, {0, 64}, {.in_turns = true});
  ASSERT_EQ(plan.transfers.size(), 2 + 2 * steps.size());  // the terms, then a send and a receive each
  for (std::uint32_t i = 2; i < plan.transfers.size(); ++i) {
    const std::uint32_t before = i - i % 2 - 2;  // the send of the swap before
    const std::vector<std::uint32_t> swap{before, before + 1};
    // A send of a later swap begins when its partner's answer, the receive behind it, has been announced.
    const bool is_answered = i >= 4 && plan.transfers[i].action == Action::kSend;
    EXPECT_EQ(plan.transfers[i].answer, is_answered ? std::optional(i + 1) : std::nullopt) << "transfer " << i;
    EXPECT_EQ(plan.transfers[i].follows, i < 4 ? std::vector<std::uint32_t>{} : swap) << "transfer " << i;
  }
}

TEST(Plan, WithoutTurnsOnlyElementsAreWaitedFor) {
  for (const auto& transfer : make_plan(halving_doubling_of_four(), 4, 1, 64, {0, 64}, {}).transfers) {
    EXPECT_TRUE(transfer.follows.empty());
  }
}

// Six ranks: the fifth hands its tensor over before the swaps begin, piece by piece as it goes.
TEST(Plan, WhatIsNoSwapIsNotFollowed) {
  const auto steps = *schedule::make({.algorithm = {.name = "halving-doubling"}, .world = 6, .rank = 0, .count = 64});
  const Plan plan = make_plan(steps, 6, 0, 64, {0, 64}, {.in_turns = true});
  ASSERT_EQ(steps.front().size(), 1U);
  EXPECT_TRUE(plan.transfers[3].follows.empty());
  EXPECT_TRUE(plan.transfers.back().follows.empty()) << "the sum is handed back as it comes";
}

}  // namespace
}  // namespace netfold::group

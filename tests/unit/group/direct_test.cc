// The direct executor driven by hand: what a tensor holds when its all-reduce is given up in the middle.
#include "group/via_peers/direct.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>

namespace netfold::group {
namespace {

constexpr std::size_t kCount = 4'000'000;  // many more chunks than buffers

std::unique_ptr<DirectExecutor> rank_of_two(int rank, std::unique_ptr<link::Arena> arena) {
  return std::make_unique<DirectExecutor>(rank, std::move(arena), std::vector<std::shared_ptr<link::Doorbell>>(2));
}

// Gives an all-reduce up when the first sums are written and the last are not; returns what `in` then holds.
std::vector<float> given_up(bool in_place) {
  auto first = link::Arena::create(2, DirectExecutor::shape_for(2));
  auto second = link::Arena::map(dup(first->descriptor()), 2);
  if (!first || !second) throw std::runtime_error("no shared memory");
  const auto stays = rank_of_two(0, std::move(first)), goes = rank_of_two(1, std::move(second));

  std::vector<float> in(kCount, 1), out(kCount, -7), others(kCount, 2);
  std::vector<float>& result = in_place ? in : out;
  const float before = result.back();
  stays->submit(1, {.in = in.data(), .out = result.data(), .count = kCount}, {});
  goes->submit(1, {.in = others.data(), .out = others.data(), .count = kCount}, {});
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(stays->pump());
    EXPECT_TRUE(goes->pump());
  }
  EXPECT_TRUE(stays->pump());
  EXPECT_EQ(result.front(), 3) << "nothing was written that could be lost";
  EXPECT_EQ(result.back(), before) << "it is not in the middle";
  EXPECT_EQ(stays->abandon(), std::vector<DirectExecutor::Ticket>{1});
  return in;
}

TEST(Direct, ATensorFoldedInPlaceIsPutBack) {
  EXPECT_EQ(given_up(true), std::vector<float>(kCount, 1));
}

TEST(Direct, WhatIsFoldedElsewhereIsNeverWritten) {
  EXPECT_EQ(given_up(false), std::vector<float>(kCount, 1));
}

}  // namespace
}  // namespace netfold::group

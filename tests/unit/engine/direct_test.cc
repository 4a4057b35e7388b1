// The direct executor driven by hand: what a tensor holds when its all-reduce is given up in the middle.
#include "engine/collective/direct.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace netfold::engine {
namespace {

constexpr std::size_t kCount = 4'000'000;  // many more chunks than there are rooms

std::unique_ptr<DirectExecutor> rank_of_two(int rank, std::unique_ptr<link::Arena> arena) {
  return std::make_unique<DirectExecutor>(rank, std::move(arena), std::vector<std::shared_ptr<link::Doorbell>>(2));
}

void expect_put_back(bool in_place) {
  auto first = link::Arena::create(2, DirectExecutor::shape_for(2));
  ASSERT_TRUE(first);
  auto second = link::Arena::map(dup(first->descriptor()), 2);
  ASSERT_TRUE(second);
  const auto stays = rank_of_two(0, std::move(first)), goes = rank_of_two(1, std::move(second));

  std::vector<float> in(kCount, 1), out(kCount, -7), others(kCount, 2);
  const std::vector<float> before = in_place ? in : out;
  std::vector<float>& result = in_place ? in : out;
  stays->submit(1, {.in = in.data(), .out = result.data(), .count = kCount}, {}, {});
  goes->submit(1, {.in = others.data(), .out = others.data(), .count = kCount}, {}, {});
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(stays->pump());
    ASSERT_TRUE(goes->pump());
  }
  ASSERT_TRUE(stays->pump());
  ASSERT_EQ(result.front(), 3) << "nothing was written that could be put back";
  ASSERT_EQ(result.back(), before.back()) << "it is not in the middle";

  EXPECT_EQ(stays->abandon(), std::vector<DirectExecutor::Ticket>{1});
  EXPECT_EQ(result, before);
  EXPECT_TRUE(std::ranges::all_of(in, [](float x) { return x == 1; }));
}

TEST(Direct, ATensorFoldedInPlaceIsPutBack) {
  expect_put_back(true);
}

TEST(Direct, AResultOfItsOwnIsPutBack) {
  expect_put_back(false);
}

}  // namespace
}  // namespace netfold::engine

// Finding the rank that stalls the others, from the reports of all ranks.
#include "group/via_peers/waits.h"

#include <gtest/gtest.h>

namespace netfold::group {
namespace {

Standing waiting(std::vector<int> ranks) {
  return {std::move(ranks), 0};
}

TEST(Waits, FollowsAChainToItsEnd) {
  EXPECT_EQ(find_stall({waiting({1}), waiting({2}), waiting({3}), {}}, 0).rank, 3);
}

// Halving-doubling: partners wait for each other, and one of them for another rank too.
TEST(Waits, LooksBehindCircles) {
  const std::vector<Standing> standings{waiting({1}), waiting({0, 3}), {}, waiting({1, 2})};
  for (const int from : {0, 1, 3}) EXPECT_EQ(find_stall(standings, from).rank, 2) << "seen from " << from;
}

TEST(Waits, WhoMovesIsSuspectedLast) {
  EXPECT_EQ(find_stall({waiting({1, 2}), {{}, 5}, {{}, 3}}, 0).rank, 2);
  EXPECT_EQ(find_stall({waiting({1}), {{}, 5}, {}}, 0).moved_at, 5);
}

TEST(Waits, NobodyIsToBlameInACircle) {
  const Stall stall = find_stall({waiting({1}), waiting({2}), waiting({0}), {}}, 0);
  EXPECT_EQ(stall.rank, kNoRank);
  EXPECT_EQ(stall.circle, (std::vector{0, 1, 2}));
}

// A connection between two ranks is cut: the others wait for them, they for each other.
TEST(Waits, TheInnermostCircleIsFound) {
  const std::vector<Standing> standings{waiting({1}), waiting({0}), waiting({0, 3}), waiting({1, 2})};
  for (const int from : {0, 1, 2, 3}) EXPECT_EQ(find_stall(standings, from).circle, (std::vector{0, 1}));
}

// Two ranks with a slow link between them: each waits for the other again and again, and moves on.
TEST(Waits, ACircleHasMovedWhenTheLastOfItDid) {
  const std::vector<Standing> standings{{{1}, 7}, {{0}, 5}, {{0}, 9}};
  for (const int from : {0, 1, 2}) EXPECT_EQ(find_stall(standings, from).moved_at, 7) << "seen from " << from;
}

TEST(Waits, NonsenseIsNoRank) {
  EXPECT_EQ(find_stall({waiting({-7, 99, 1}), {}}, 0).rank, 1);
}

}  // namespace
}  // namespace netfold::group

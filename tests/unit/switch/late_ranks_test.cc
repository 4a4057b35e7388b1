#include "switch/late_ranks.h"

#include <gtest/gtest.h>

namespace netfold::switching {
namespace {

using Job = LateRanks::Job;
using Counts = std::map<Job, std::vector<std::uint64_t>>;

constexpr Job kOne{0, 1}, kOther{1, 1};

TEST(LateRanks, ARankIsLateWhereItCameLastForMostChunks) {
  LateRanks late;
  EXPECT_TRUE(late.look(Counts{{kOne, {500, 0, 0}}, {kOther, {0, 9}}}).empty())
      << "nothing is known of what came before";
  const auto found = late.look(Counts{{kOne, {510, 10, 80}}, {kOther, {50, 59}}});
  EXPECT_EQ(found, (std::map<Job, LateRanks::Place>{{kOne, 2}}));
}

TEST(LateRanks, FewChunksAndEqualRanksSayNothing) {
  LateRanks late;
  late.look(Counts{{kOne, {0, 0, 0}}, {kOther, {0, 0}}});
  EXPECT_TRUE(late.look(Counts{{kOne, {0, 0, 15}}, {kOther, {26, 74}}}).empty());
  EXPECT_TRUE(late.look(Counts{{kOne, {30, 35, 70}}, {kOther, {26, 74}}}).empty()) << "the other one computes";
}

TEST(LateRanks, AJobOfTheSameNumberIsAnotherOne) {
  LateRanks late;
  late.look(Counts{{kOne, {0, 0}}});
  EXPECT_TRUE(late.look(Counts{{Job{0, 2}, {0, 100}}}).empty());
  EXPECT_EQ(late.look(Counts{{Job{0, 2}, {0, 200}}}).size(), 1u);
}

}  // namespace
}  // namespace netfold::switching

#include "switch/late_ranks.h"

#include <gtest/gtest.h>

namespace netfold::switching {
namespace {

using LateJob = LateRanks::Job;
using CameLast = std::map<LateJob, std::vector<std::uint64_t>>;

constexpr LateJob kSlowed = 1, kEqual = 2, kLater = 3;

TEST(LateRanks, ARankIsLateWhereItCameLastForMostChunks) {
  LateRanks late;
  EXPECT_TRUE(late.look(CameLast{{kSlowed, {500, 0, 0}}, {kEqual, {0, 9}}}).empty())
      << "nothing is known of what came before";
  const auto found = late.look(CameLast{{kSlowed, {510, 10, 80}}, {kEqual, {50, 59}}});
  EXPECT_EQ(found, (std::map<LateJob, LateRanks::Place>{{kSlowed, 2}}));
}

TEST(LateRanks, FewChunksAndEqualRanksSayNothing) {
  LateRanks late;
  late.look(CameLast{{kSlowed, {0, 0, 0}}, {kEqual, {0, 0}}});
  EXPECT_TRUE(late.look(CameLast{{kSlowed, {0, 0, 15}}, {kEqual, {26, 74}}}).empty());
  EXPECT_TRUE(late.look(CameLast{{kSlowed, {30, 35, 70}}, {kEqual, {26, 74}}}).empty()) << "the other one computes";
}

TEST(LateRanks, AJobThatComesCountsFromThenOn) {
  LateRanks late;
  late.look(CameLast{{kSlowed, {0, 0}}});
  EXPECT_TRUE(late.look(CameLast{{kLater, {0, 100}}}).empty());
  EXPECT_EQ(late.look(CameLast{{kLater, {0, 200}}}).size(), 1u);
}

}  // namespace
}  // namespace netfold::switching

#include "switch/fair_shares.h"

#include <gtest/gtest.h>

namespace netfold::switching {
namespace {

using Job = FairShares::Job;

constexpr Job kOne = 1, kOther = 2, kThird = 3;

// Each job has these bytes between two looks.
std::map<Job, double> said_after(const std::map<Job, FairShares::Bytes>& bytes) {
  FairShares shares;
  std::map<Job, FairShares::Bytes> so_far;
  for (const auto& [job, unused] : bytes) so_far[job] = {.up = 1000, .down = 7};
  EXPECT_TRUE(shares.look(so_far).empty()) << "nothing is known of what came before";
  for (const auto& [job, more] : bytes) {
    so_far[job].up += more.up;
    so_far[job].down += more.down;
  }
  return shares.look(so_far);
}

TEST(FairShares, AJobThatHasMoreHearsHowMuch) {
  const auto said = said_after({{kOne, {3'000'000, 3'000'000}}, {kOther, {1'000'000, 1'000'000}}});
  EXPECT_EQ(said, (std::map<Job, double>{{kOne, 1.5}}));
  const auto of_three =
      said_after({{kOne, {4'000'000, 4'000'000}}, {kOther, {1'000'000, 1'000'000}}, {kThird, {1'000'000, 1'000'000}}});
  EXPECT_EQ(of_three.size(), 1u);
  EXPECT_NEAR(of_three.at(kOne), 2, 1e-9);
}

TEST(FairShares, NobodyHearsOfSmallDifferences) {
  EXPECT_TRUE(said_after({{kOne, {1'050'000, 1'050'000}}, {kOther, {1'000'000, 1'000'000}}}).empty());
  EXPECT_TRUE(said_after({{kOne, {1'000'000, 1'000'000}}}).empty()) << "it is the only one";
  EXPECT_TRUE(said_after({{kOne, {1'000'000, 1'000'000}}, {kOther, {0, 0}}}).empty()) << "the other one computes";
  EXPECT_TRUE(said_after({{kOne, {0, 0}}, {kOther, {0, 0}}}).empty());
}

// FSDP's reduce-scatters and all-gathers are two jobs at the switch: the first load the way up, the second that down.
TEST(FairShares, JobsCompeteForTheWayThatTheyLoad) {
  const FairShares::Bytes scatters{8'000'000, 1'000'000}, gathers{1'000'000, 8'000'000}, both{2'000'000, 2'000'000};
  EXPECT_TRUE(said_after({{kOne, scatters}, {kOther, gathers}}).empty());
  const auto said = said_after({{kOne, scatters}, {kOther, both}});
  EXPECT_EQ(said, (std::map<Job, double>{{kOne, 1.6}})) << "they share the way up";
}

TEST(FairShares, AJobThatComesCountsFromThenOn) {
  FairShares shares;
  shares.look({{kOne, {5'000'000, 5'000'000}}});
  EXPECT_TRUE(shares.look({{kOne, {6'000'000, 6'000'000}}, {kOther, {100'000, 100'000}}}).empty());
  const auto said = shares.look({{kOne, {9'000'000, 9'000'000}}, {kOther, {1'100'000, 1'100'000}}});
  EXPECT_EQ(said, (std::map<Job, double>{{kOne, 1.5}}));
  EXPECT_TRUE(shares.look({{kOther, {2'000'000, 2'000'000}}}).empty()) << "the first one has ended";
  EXPECT_TRUE(shares.look({{kOther, {0, 0}}, {kOne, {0, 0}}}).empty()) << "these were the bytes of a job before it";
}

}  // namespace
}  // namespace netfold::switching

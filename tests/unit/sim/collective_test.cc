// Schedules that do not fit together are errors that name who waits for whom; none of them is simulated.
#include "sim/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace netfold::sim {
namespace {

using schedule::Action;
using schedule::Steps;
using ::testing::HasSubstr;

constexpr Start kStarts[] = {Start::kLockStep, Start::kOwnReceive, Start::kRendezvous, Start::kPieces};

Result<Workload> made_of(const std::vector<Steps>& steps, Start start) {
  return workload_of(static_cast<int>(steps.size()),
                     [&](int rank) -> Result<Steps> { return steps[static_cast<std::size_t>(rank)]; },
                     {.start = start});
}

class Starts : public ::testing::TestWithParam<Start> {};
INSTANTIATE_TEST_SUITE_P(All, Starts, ::testing::ValuesIn(kStarts));

TEST_P(Starts, AReceiveThatNobodySendsToIsNamed) {
  const auto made = made_of({{{{Action::kFold, 1, 0, 4}}}, {}}, GetParam());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("rank 0 waits in step 0 for rank 1"));
  EXPECT_EQ(made.error().rank, 0);
}

TEST_P(Starts, ASendThatNobodyReceivesIsNamed) {
  const auto made = made_of({{{{Action::kSend, 1, 0, 4}}}, {}}, GetParam());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("rank 0 sends more messages to rank 1"));
}

TEST_P(Starts, CountsThatDifferAreNamed) {
  const auto made = made_of({{{{Action::kSend, 1, 0, 4}}}, {{{Action::kStore, 0, 0, 5}}}}, GetParam());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("rank 0 sends 4 elements in step 0, rank 1 expects 5"));
}

TEST_P(Starts, APeerThatIsNoneIsNamed) {
  const auto made = made_of({{{{Action::kSend, 7, 0, 4}}}, {}}, GetParam());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("rank 0's step 0 names rank 7"));
}

// Each receives before it sends what the other waits for.
const std::vector<Steps> kCircle{{{{Action::kStore, 1, 0, 4}}, {{Action::kSend, 1, 0, 4}}},
                                 {{{Action::kStore, 0, 0, 4}}, {{Action::kSend, 0, 0, 4}}}};

TEST(Circle, RanksThatWaitForEachOtherAreNamed) {
  for (const Start start : kStarts) {
    const auto made = made_of(kCircle, start);
    ASSERT_FALSE(made) << name_of(start);
    EXPECT_THAT(made.error().message, HasSubstr("waits for what never comes")) << name_of(start);
  }
}

}  // namespace
}  // namespace netfold::sim

// How jobs form, run and fail in a tree of switches: every worker's error names what is to be looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/switch/tree_conversation.h"

namespace netfold::switching {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Switch 0 is above 1 and 2. Ranks 0 and 1 are at switch 1, ranks 2 and 3 at switch 2.
struct FourRanks : TreeConversation {
  explicit FourRanks(const WorkerOptions& workers = {}, const Options& top = {}, Options leaf = {}) {
    add_switch(top);
    leaf.parent = 0;
    add_switch(leaf);
    add_switch(leaf);
    for (std::uint16_t rank = 0; rank < 4; ++rank) add_worker(rank < 2 ? 1 : 2, rank, workers);
  }
  void expect_all_fail(const std::string& words, ErrorCode code) {
    for (std::size_t worker = 0; worker < workers(); ++worker) {
      ASSERT_TRUE(error(worker)) << "rank " << worker << " goes on";
      EXPECT_THAT(error(worker)->message, HasSubstr(words)) << "rank " << worker;
      EXPECT_EQ(error(worker)->code, code) << error(worker)->message;
    }
  }
};

TEST(TreeControl, AdmitsAJobAtAllSwitchesAlike) {
  FourRanks tree;
  const wire::Lease& lease = tree.admissions(0).at(0).lease;
  EXPECT_TRUE(lease.is_tree);
  EXPECT_EQ(lease.world, 2);
  for (std::size_t worker = 0; worker < 4; ++worker) {
    ASSERT_TRUE(tree.is_admitted(worker));
    const auto& of_worker = tree.connection(worker).lease();
    EXPECT_EQ(of_worker.world, 4);
    EXPECT_TRUE(of_worker.is_tree);
    EXPECT_EQ(of_worker.slots, lease.slots);
    EXPECT_EQ(of_worker.payload_bytes, lease.payload_bytes);
    EXPECT_EQ(of_worker.first_chunk, lease.first_chunk);
    EXPECT_EQ(tree.connection(worker).side().above(), TreeConversation::address(0));
  }
  const Tree& top = tree.admissions(0).at(0).tree;
  EXPECT_FALSE(top.above);
  ASSERT_EQ(top.contributors.size(), 2u);
  EXPECT_EQ(name_of(top.contributors[1]), "ranks 2 to 3");
  const Tree& second = tree.admissions(2).at(0).tree;
  ASSERT_TRUE(second.above);
  EXPECT_EQ(second.above->rank, 2);
  EXPECT_EQ(second.above->lease.epoch, lease.epoch);
  EXPECT_EQ(second.above->shards[0], (link::Address{0x0a000001, 9000}));
}

TEST(TreeControl, TakesThreeLevelsAndWorkersAmongSwitches) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 1, .shards = 4});
  // (0 (1 (2 3)) 4): the last first, so that switches hear of ranks in another order than theirs.
  tree.add_worker(0, 4, {.world = 5});
  tree.add_worker(2, 3, {.world = 5});
  tree.add_worker(2, 2, {.world = 5});
  tree.add_worker(1, 1, {.world = 5});
  tree.add_worker(0, 0, {.world = 5});
  for (std::size_t worker = 0; worker < 5; ++worker) ASSERT_TRUE(tree.is_admitted(worker));
  const auto& middle = tree.admissions(1).at(0).tree.contributors;
  ASSERT_EQ(middle.size(), 2u);
  EXPECT_FALSE(middle[0].is_switch());
  EXPECT_THAT(middle[1].udp_ports, ElementsAre(9000, 9001, 9002, 9003));
  EXPECT_EQ(tree.admissions(0).at(0).tree.contributors.size(), 3u);
}

TEST(TreeControl, KeepsAJobWhoseRanksAreAllHere) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  for (std::uint16_t rank = 0; rank < 4; ++rank) tree.add_worker(1, rank);
  ASSERT_TRUE(tree.is_admitted(3));
  EXPECT_FALSE(tree.connection(3).lease().is_tree);
  EXPECT_EQ(tree.admissions(0).size(), 0u);
  tree.pass(2 * kSecond);
  EXPECT_THAT(tree.at(0).table().jobs(), ::testing::IsEmpty());
}

TEST(TreeControl, GrantsWhatTheNarrowestLinkAndTheSmallestMemoryTake) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0, .mtu = 1400});
  tree.add_switch({.parent = 0, .memory_max_bytes = 600000});
  tree.add_worker(1, 0);
  tree.add_worker(1, 1);
  tree.add_worker(2, 2);
  tree.add_worker(2, 3, {.mtu = 1200});
  const wire::Lease& lease = tree.connection(0).lease();
  EXPECT_EQ(lease.payload_bytes, 1200 - 44);
  EXPECT_EQ(lease.slots, 128u);
  EXPECT_EQ(lease.elements_per_chunk(numbers::Format::kFp16), (1200 - 44) / 4u);
}

TEST(TreeControl, EachHopHasItsOwnSecretAndTags) {
  FourRanks tree({.secret = "leaf", .require_auth = true}, {.secret = "top", .require_auth = true},
                 {.secret = "leaf", .parent_secret = "top", .require_auth = true});
  for (std::size_t worker = 0; worker < 4; ++worker) ASSERT_TRUE(tree.is_admitted(worker));
  const auto& above = *tree.admissions(1).at(0).tree.above;
  EXPECT_EQ(above.lease.keys, tree.admissions(0).at(0).lease.keys);
  EXPECT_NE(above.lease.keys, tree.admissions(1).at(0).lease.keys);
}

TEST(TreeControl, ASwitchAboveWithAnotherSecretIsAnErrorOnEveryRank) {
  FourRanks tree({.secret = "leaf"}, {.secret = "top"}, {.secret = "leaf"});
  tree.expect_all_fail(TreeConversation::address(0), ErrorCode::kAuth);
}

TEST(TreeControl, KeepsJobsWithOtherTokensApart) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 0});
  tree.add_worker(1, 0, {.world = 2, .secret = "one"});
  const auto other = tree.add_worker(2, 1, {.world = 2, .secret = "another"});
  ASSERT_TRUE(tree.error(other));
  EXPECT_EQ(tree.error(other)->code, ErrorCode::kAuth);
}

TEST(TreeControl, ASwitchAboveThatIsNotThereIsNamed) {
  TreeConversation tree;
  tree.add_switch({.parent = 7});
  tree.add_worker(0, 0);
  tree.add_worker(0, 1);
  tree.pass(29 * kSecond);
  for (const std::size_t worker : {0, 1}) {
    ASSERT_TRUE(tree.error(worker));
    EXPECT_EQ(tree.error(worker)->code, ErrorCode::kSwitchFailed);
    EXPECT_THAT(tree.error(worker)->message, HasSubstr(TreeConversation::address(7)));
  }
}

TEST(TreeControl, ACycleOfSwitchesIsAnErrorAtOnce) {
  TreeConversation tree;
  tree.add_switch({.parent = 2});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 1});
  tree.add_worker(0, 0);
  tree.add_worker(1, 1);
  for (const std::size_t worker : {0, 1}) {
    ASSERT_TRUE(tree.error(worker));
    EXPECT_THAT(tree.error(worker)->message, AllOf(HasSubstr("cycle"), HasSubstr("10.0.")));
  }
  TreeConversation pair;  // all ranks are below each
  pair.add_switch({.parent = 1});
  pair.add_switch({.parent = 0});
  for (std::uint16_t rank = 0; rank < 4; ++rank) pair.add_worker(rank / 2u, rank);
  for (std::size_t worker = 0; worker < 4; ++worker) {
    ASSERT_TRUE(pair.error(worker));
    EXPECT_THAT(pair.error(worker)->message, HasSubstr("cycle"));
  }
  TreeConversation alone;
  alone.add_switch({.parent = 0});
  alone.add_worker(0, 0);
  ASSERT_TRUE(alone.error(0));
  EXPECT_THAT(alone.error(0)->message, HasSubstr("cycle"));
}

TEST(TreeControl, RanksThatAreNotInARowAreAnErrorOnEveryRank) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 0});
  for (std::uint16_t rank = 0; rank < 4; ++rank) tree.add_worker(1 + rank % 2u, rank);
  for (std::size_t worker = 0; worker < 4; ++worker) {
    ASSERT_TRUE(tree.error(worker));
    EXPECT_THAT(tree.error(worker)->message, AllOf(HasSubstr("10.0.1.1:7171"), HasSubstr("not in a row")));
  }
}

TEST(TreeControl, ARankThatComesTwiceIsRefused) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 0});
  tree.add_worker(1, 0);
  tree.add_worker(1, 1);
  const auto twice = tree.add_worker(2, 1);
  tree.pass(10 * kSecond);
  ASSERT_TRUE(tree.error(twice));
  EXPECT_THAT(tree.error(twice)->message, AllOf(HasSubstr("rank 1"), HasSubstr("joined already")));
  EXPECT_FALSE(tree.error(0));
  tree.add_worker(2, 2);
  tree.add_worker(2, 3);
  EXPECT_TRUE(tree.is_admitted(0));
}

TEST(TreeControl, SwitchesThatDisagreeAboutAJobAreNamed) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 0});
  tree.add_worker(1, 0);
  const auto other = tree.add_worker(2, 2, {.world = 5});
  ASSERT_TRUE(tree.error(other));
  EXPECT_EQ(tree.error(other)->code, ErrorCode::kMismatch);
  EXPECT_THAT(tree.error(other)->message, HasSubstr(TreeConversation::address(0)));
}

TEST(TreeControl, TellsEveryRankWhoDidNotCome) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 0});
  tree.add_worker(1, 0);
  tree.add_worker(1, 1);
  tree.add_worker(2, 2);
  tree.pass(31 * kSecond);
  for (std::size_t worker = 0; worker < 3; ++worker) {
    ASSERT_TRUE(tree.error(worker));
    EXPECT_EQ(tree.error(worker)->rank, 3) << tree.error(worker)->message;
    EXPECT_THAT(tree.error(worker)->message, Not(HasSubstr("ranks")));
  }
}

TEST(TreeControl, AWorkerMayComeAgainWhileTheJobForms) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  tree.add_switch({.parent = 0});
  tree.add_worker(1, 0);
  tree.kill_worker(tree.add_worker(1, 1));
  tree.add_worker(2, 2);
  tree.add_worker(2, 3);
  EXPECT_FALSE(tree.is_admitted(0));
  tree.add_worker(1, 1);
  EXPECT_TRUE(tree.is_admitted(0));
}

TEST(TreeControl, ADeadWorkerIsNamedOnEveryRank) {
  FourRanks tree;
  tree.kill_worker(2);
  for (const std::size_t worker : {0, 1, 3}) {
    ASSERT_TRUE(tree.error(worker));
    EXPECT_EQ(tree.error(worker)->code, ErrorCode::kPeerFailed);
    EXPECT_EQ(tree.error(worker)->rank, 2);
  }
  for (const std::size_t box : {0, 1, 2}) EXPECT_EQ(tree.running(box), 0u);
}

TEST(TreeControl, ALostSwitchIsNamedOnEveryRank) {
  FourRanks tree;
  tree.kill_switch(2);
  tree.expect_all_fail("10.0.2.1:7171", ErrorCode::kSwitchFailed);
  EXPECT_THAT(tree.error(0)->message, HasSubstr("ranks 2 to 3"));
}

TEST(TreeControl, ALostSwitchAboveIsNamedOnEveryRank) {
  FourRanks tree;
  tree.kill_switch(0);
  tree.expect_all_fail("10.0.0.1:7171", ErrorCode::kSwitchFailed);
}

TEST(TreeControl, ASwitchThatStopsSaysSoToEveryRank) {
  for (const std::size_t stopped : {0, 1}) {
    FourRanks tree;
    tree.stop_switch(stopped);
    tree.expect_all_fail(TreeConversation::address(stopped), ErrorCode::kSwitchFailed);
    tree.pass(2 * kSecond);
    EXPECT_TRUE(tree.at(stopped).is_done());
  }
}

TEST(TreeControl, EveryRankHearsWhoHasLeft) {
  FourRanks tree;
  tree.leave(3);
  for (const std::size_t worker : {0, 1, 2}) {
    EXPECT_THAT(tree.connection(worker).left_ranks(), ElementsAre(3));
    EXPECT_FALSE(tree.error(worker));
  }
  tree.leave(2);
  EXPECT_THAT(tree.connection(0).left_ranks(), ElementsAre(2, 3));
  EXPECT_EQ(tree.running(2), 0u);
  tree.pass(10 * kSecond);
  EXPECT_FALSE(tree.error(0));
  tree.leave(0);
  tree.leave(1);
  for (const std::size_t box : {0, 1}) EXPECT_EQ(tree.running(box), 0u);
  for (const std::size_t box : {0, 1, 2}) EXPECT_EQ(tree.at(box).table().counters().jobs_failed, 0u);
}

TEST(TreeControl, AJobLivesAsLongAsItsHeartbeats) {
  FourRanks tree;
  tree.pass(60 * kSecond);
  for (std::size_t worker = 0; worker < 4; ++worker) EXPECT_FALSE(tree.error(worker));
}

TEST(TreeControl, WorkersHearThatTheirJobHasMoreThanIsFairAtTheTop) {
  FourRanks tree;
  for (std::uint16_t rank = 0; rank < 4; ++rank) tree.add_worker(rank < 2 ? 1 : 2, rank, {.job = "other"});
  ASSERT_TRUE(tree.is_admitted(7));
  tree.pass(kSecond);
  for (std::size_t worker = 0; worker < 8; ++worker) EXPECT_FALSE(tree.take_link_share(worker));
  tree.carry(0, 0, 3'000'000);
  tree.carry(0, 1, 1'000'000);
  tree.pass(kSecond);
  const control::LinkShare more{.of_fair = 1.5};
  for (std::size_t worker = 0; worker < 4; ++worker) EXPECT_EQ(tree.take_link_share(worker), more);
  for (std::size_t worker = 4; worker < 8; ++worker) EXPECT_FALSE(tree.take_link_share(worker));
  tree.pass(kSecond);
  EXPECT_FALSE(tree.take_link_share(0)) << "it is said once";
}

TEST(TreeControl, WorkersHearWhatTheyMaySendWhereOtherTrafficHasMoreThanIsFairAtTheTop) {
  FourRanks tree;
  tree.pass(kSecond);
  tree.carry(0, 0, 1'000'000);  // two switches below: one contributor each
  for (const std::size_t place : {0, 1}) tree.come_last(0, 0, place, 0);
  tree.pass_interface(0, 9'000'000);
  tree.pass(kSecond);
  for (std::size_t worker = 0; worker < 4; ++worker) {
    const auto share = tree.take_link_share(worker);
    ASSERT_TRUE(share);
    EXPECT_EQ(share->of_fair, 1);
    // Twice what each of the two has sent since the last look, a quarter of a second before.
    EXPECT_NEAR(share->grant_bytes_s, 2 * 500'000 / 0.25, 1);
  }
}

TEST(TreeControl, TheWorkerForWhichTheOthersWaitHearsSo) {
  FourRanks tree;
  const auto late = [&] {
    std::vector<std::size_t> workers;
    for (std::size_t worker = 0; worker < tree.workers(); ++worker) {
      if (tree.take_is_late(worker)) workers.push_back(worker);
    }
    return workers;
  };
  for (const std::size_t box : {0, 1, 2}) tree.come_last(box, 0, 1, 1);
  tree.pass(kSecond);
  EXPECT_THAT(late(), ElementsAre());
  tree.come_last(0, 0, 1, 100);  // the switch of ranks 2 and 3
  tree.come_last(2, 0, 1, 100);
  tree.pass(kSecond);
  EXPECT_THAT(late(), ElementsAre(3));
  tree.come_last(2, 0, 1, 100);
  tree.leave(2);
  tree.pass(kSecond);
  EXPECT_THAT(late(), ElementsAre()) << "the job ends";
}

TEST(TreeControl, BlocksThatAreTooLongForASumAreAnError) {
  TreeConversation tree;
  tree.add_switch({});
  tree.add_switch({.parent = 0});
  for (const std::uint16_t rank : {0, 1}) tree.add_worker(rank, rank, {.world = 2, .mtu = 256, .bfp = {128, 7}});
  for (const std::size_t worker : {0, 1}) {
    ASSERT_TRUE(tree.error(worker));
    EXPECT_THAT(tree.error(worker)->message, HasSubstr("bfp block of 128"));
  }
}

TEST(TreeControl, TakesNoHost) {
  TreeConversation tree;
  tree.add_switch({.parent = 0});
  control::Join join;
  join.job = "job";
  join.rank = control::kHostRank;
  SwitchRules rules;
  rules.parent = "10.0.0.9:7171";
  const auto refusal = check_below(rules, join);
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->reason, AllOf(HasSubstr("host"), HasSubstr("10.0.0.9:7171")));
}

}  // namespace
}  // namespace netfold::switching

// Groups that end, and whose connections go on in others: over loopback and shared memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "peer_groups.h"

namespace netfold::group {
namespace {

constexpr int kKeepingWorld = 4;
const std::vector<int> kSurvivors = {0, 2, 3};

// Rank 1 fails in the middle of a collective; the others' connections to each other are kept.
Groups survivors_of_a_failure(const PeerGroupOptions& options) {
  Groups groups = open_all(kKeepingWorld, options);
  auto tensors = gradients(kKeepingWorld, 300000);
  groups[1]->close(Error{ErrorCode::kPeerFailed, "rank 1 ends", 1});
  tensors.erase(tensors.begin() + 1);
  groups.erase(groups.begin() + 1);
  for (const auto& error : reduce_all(groups, tensors)) EXPECT_TRUE(error && error->rank == 1);
  for (auto& group : groups) {
    group->keep(kSurvivors);
    group->close(Error{ErrorCode::kPeerFailed, "aborted", kNoRank});
  }
  return groups;
}

// A group of the survivors that goes on over the connections of `olds`, except between the two ranks in `anew`.
Groups shrink(Groups& olds, PeerGroupOptions options, std::pair<int, int> anew = {kNoRank, kNoRank}) {
  Groups groups;
  std::vector<std::string> addresses;
  options.world = static_cast<int>(olds.size());
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    auto group = PeerGroup::open(options);
    EXPECT_TRUE(group) << group.error().message;
    std::vector<int> old_ranks = kSurvivors;
    old_ranks[static_cast<std::size_t>(options.rank)] = kNoRank;
    if (options.rank == anew.first) old_ranks[static_cast<std::size_t>(anew.second)] = kNoRank;
    if (options.rank == anew.second) old_ranks[static_cast<std::size_t>(anew.first)] = kNoRank;
    const auto adopted = (*group)->adopt(*olds[static_cast<std::size_t>(options.rank)], old_ranks, "survivors");
    EXPECT_TRUE(adopted) << adopted.error().message;
    addresses.push_back((*group)->address());
    groups.push_back(std::move(*group));
  }
  connect_all(groups, addresses);
  return groups;
}

void expect_right_sums(Groups& groups) {
  std::vector<std::vector<float>> tensors;
  float sum = 0;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    tensors.emplace_back(100000, static_cast<float>(1 << rank));
    sum += static_cast<float>(1 << rank);
  }
  for (const auto& error : reduce_all(groups, tensors)) EXPECT_FALSE(error) << error->message;
  for (const auto& tensor : tensors) {
    EXPECT_TRUE(std::ranges::all_of(tensor, [&](float element) { return element == sum; }));
  }
}

class PeerGroupKeeps : public ::testing::TestWithParam<std::string> {
 protected:
  PeerGroupOptions options() const {
    return {.timeout_s = 20, .shm = GetParam() == "shm", .secret = "secret", .require_auth = GetParam() == "tagged"};
  }
};
INSTANTIATE_TEST_SUITE_P(Links, PeerGroupKeeps, ::testing::Values("shm", "tcp", "tagged"),
                         [](const auto& links) { return links.param; });

TEST_P(PeerGroupKeeps, ConnectionsOfTheSurvivorsOfAFailure) {
  Groups olds = survivors_of_a_failure(options());
  for (std::size_t i = 0; i < olds.size(); ++i) {
    std::vector<int> others = kSurvivors;
    std::erase(others, kSurvivors[i]);
    EXPECT_EQ(olds[i]->kept(), others);
  }
  Groups groups = shrink(olds, options());
  expect_right_sums(groups);
  for (const auto& old : olds) {
    EXPECT_TRUE(old->kept().empty());
    std::vector<float> tensor(10);
    const auto ticket = old->submit(in_place(tensor));
    EXPECT_TRUE(!ticket || finish(*old, *ticket));  // an error, and nothing else
  }
  olds.clear();  // does not end what has moved
  expect_right_sums(groups);
}

TEST_P(PeerGroupKeeps, AndTwoOfThemConnectAnew) {
  Groups olds = survivors_of_a_failure(options());
  Groups groups = shrink(olds, options(), {0, 2});
  expect_right_sums(groups);
}

TEST_P(PeerGroupKeeps, ConnectionsOfAGroupThatHasNotFailed) {
  Groups olds = open_all(kKeepingWorld, options());
  expect_right_sums(olds);
  std::vector<std::future<void>> closing;
  for (std::size_t rank = 0; rank < kKeepingWorld; ++rank) {
    if (rank != 1) olds[rank]->keep(kSurvivors);
    closing.push_back(std::async(std::launch::async, [&olds, rank] { olds[rank]->close(); }));
  }
  for (auto& each : closing) each.get();
  olds.erase(olds.begin() + 1);
  Groups groups = shrink(olds, options());
  expect_right_sums(groups);
}

TEST_P(PeerGroupKeeps, NothingOnceDropped) {
  Groups olds = survivors_of_a_failure(options());
  olds[0]->drop_kept();
  EXPECT_TRUE(olds[0]->kept().empty());
  auto group = PeerGroup::open({.rank = 0, .world = 3});
  ASSERT_TRUE(group);
  const auto adopted = (*group)->adopt(*olds[0], {kNoRank, 2, 3}, "survivors");
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace netfold::group

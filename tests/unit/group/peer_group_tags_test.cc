// Ranks that require tags on what leaves the machine: all do, and a changed byte reaches no sum.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proxied.h"

namespace netfold::group {
namespace {

PeerGroupOptions with_tags(int streams = 1) {
  return {.timeout_s = 20, .shm = false, .tcp_streams = streams, .secret = "open sesame", .require_auth = true};
}

class Tags : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Streams, Tags, ::testing::Values(1, 3));

TEST_P(Tags, CoverSumsOfAnySize) {
  constexpr int kWorld = 3;
  Groups groups = open_all(kWorld, with_tags(GetParam()));
  for (const char* const algorithm : {"ring", "direct"}) {
    for (const std::size_t count : {1u, 300u, 70'000u, 3'000'000u}) {
      const auto before = gradients(kWorld, count);
      auto tensors = before;
      for (const auto& error : reduce_all(groups, tensors, {.algorithm = {.name = algorithm}})) {
        ASSERT_FALSE(error) << error->message;
      }
      for (std::size_t i = 0; i < count; i += 1 + count / 1000) {
        for (const auto& tensor : tensors) {
          ASSERT_NEAR(static_cast<double>(tensor[i]), exact_sum(before, i), tolerance(numbers::Format::kFp32, kWorld));
        }
      }
    }
  }
}

// Rank 1 reaches rank 0 through a proxy that changes one bit of what passes, in either direction. A rank that has its
// sum by then has the right one.
TEST_P(Tags, KeepAChangedByteOutOfEverySum) {
  constexpr int kWorld = 3;
  const CollectiveRequest request{.algorithm = {.name = "direct"}};
  const auto before = gradients(kWorld, 1'000'000);
  auto right = before;
  Groups undisturbed = open_all(kWorld, with_tags(GetParam()));
  for (const auto& error : reduce_all(undisturbed, right, request)) ASSERT_FALSE(error) << error->message;
  for (std::size_t after = 100'000; after < 4'000'000; after += 613'417) {
    SCOPED_TRACE(after);
    PeerGroupOptions options = with_tags(GetParam());
    options.timeout_s = 5;
    Proxied ranks(kWorld, 1, options, {Fault::Kind::kChange, true, after});
    auto tensors = before;
    const auto errors = reduce_all(ranks.groups, tensors, request);
    ASSERT_TRUE(ranks.proxy->has_struck());
    EXPECT_TRUE(std::ranges::any_of(errors, [](const auto& error) { return error.has_value(); }));
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      const auto& error = errors[rank];
      EXPECT_EQ(tensors[rank], (error ? before : right)[rank]);
      if (!error) continue;
      EXPECT_EQ(error->code, ErrorCode::kPeerFailed) << error->message;
      EXPECT_TRUE(error->rank == 0 || error->rank == 1) << error->message;
      EXPECT_THAT(error->message, ::testing::HasSubstr("sent bytes with a wrong tag"));
    }
  }
}

// A message of rank 1 about the group reaches rank 0 changed. Rank 0 fails, and repeats nothing of it.
TEST(Tags, CoverWhatRanksSayToEachOther) {
  Proxied ranks(2, 1, with_tags(), {Fault::Kind::kChange, true, SIZE_MAX});
  ranks.proxy->change_words();
  ranks.groups[1]->close(Error{ErrorCode::kPeerFailed, "rank 1 has failed", 1});
  std::vector<float> tensor(100'000, 1);
  const auto over = ranks.groups[0]->run(in_place(tensor));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().message, "rank 1 sent a message with a wrong tag");
  EXPECT_EQ(over.error().rank, 1);
}

TEST(Tags, MustBeWantedByAllRanks) {
  for (const int with : {0, 1}) {
    for (const bool shm : {false, true}) {
      Groups groups;
      for (const int rank : {0, 1}) {
        PeerGroupOptions options = with_tags();
        options.rank = rank, options.world = 2, options.shm = shm;
        options.require_auth = rank == with;
        groups.push_back(std::move(*PeerGroup::open(options)));
      }
      const std::vector<std::string> addresses{groups[0]->address(), groups[1]->address()};
      auto lower = std::async(std::launch::async, [&] { return groups[0]->connect(addresses); });
      for (const auto& connected : {groups[1]->connect(addresses), lower.get()}) {
        ASSERT_FALSE(connected);
        EXPECT_EQ(connected.error().code, ErrorCode::kMismatch);
        EXPECT_THAT(connected.error().message,
                    ::testing::HasSubstr(fmt::format("rank {} authenticates what it sends to other ranks, and rank {} "
                                                     "does not",
                                                     with, 1 - with)));
        EXPECT_THAT(connected.error().message, ::testing::HasSubstr("NETFOLD_REQUIRE_AUTH"));
      }
    }
  }
}

TEST(Tags, NeedASecret) {
  PeerGroupOptions options = with_tags();
  options.secret = "";
  const auto opened = PeerGroup::open(options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(opened.error().message, ::testing::HasSubstr("authenticated packets need a secret"));
}

// Connections without tags do not go on in a group that requires them, nor the other way round.
TEST(Tags, StayOnConnectionsThatAreKept) {
  PeerGroupOptions options = with_tags();
  Groups olds = open_all(2, options);
  olds[0]->keep({1});
  options.world = 2;
  options.require_auth = false;
  const auto next = std::move(*PeerGroup::open(options));
  const auto adopted = next->adopt(*olds[0], {kNoRank, 1}, "next");
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace netfold::group

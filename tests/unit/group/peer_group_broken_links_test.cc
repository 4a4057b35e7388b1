// The errors of ranks over real TCP if the connection between two of them breaks or stalls in the middle of a
// collective. All of them live. netfold-vopr cuts and blocks simulated streams in more ways.
#include <gtest/gtest.h>

#include "proxied.h"

namespace netfold::group {
namespace {

struct Case {
  const char* name;
  Fault fault;
};

class BrokenLinks : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kWorld = 4;

  void expect_failure_in_time(const std::vector<std::optional<Error>>& errors) const {
    ASSERT_TRUE(ranks_.proxy->has_struck());
    // The timeout counts from when the buffers of the kernel are full, on a machine that may be busy.
    EXPECT_LT(now() - ranks_.proxy->struck_at(), 20 * kSecond);
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_TRUE(error->code == ErrorCode::kPeerFailed || error->code == ErrorCode::kTimeout) << error->message;
      // Where all wait in one circle, as in a ring, all of it is named.
      const bool names_circle = error->message.find("between ranks 0 and 1") != std::string::npos;
      EXPECT_TRUE(error->rank == 0 || error->rank == 1 || names_circle) << error->message;
    }
  }

  Proxied ranks_{kWorld, 1, {.timeout_s = 2}, GetParam().fault};
};

TEST_P(BrokenLinks, AllReducesFailEverywhereAndTensorsArePutBack) {
  const auto before = gradients(kWorld, 2'000'000);
  auto tensors = before;
  expect_failure_in_time(reduce_all(ranks_.groups, tensors, {.algorithm = {.name = "halving-doubling"}}));
  EXPECT_EQ(tensors, before);
}

TEST_P(BrokenLinks, AllGathersFailEverywhereAndTensorsArePutBack) {
  constexpr std::size_t kPart = 500'000;
  const auto before = gradients(kWorld, kWorld * kPart);
  auto tensors = before;
  expect_failure_in_time(run_all(ranks_.groups, [&](std::size_t rank) {
    return CollectiveRequest{.in = tensors[rank].data() + rank * kPart,
                             .out = tensors[rank].data(),
                             .count = kPart,
                             .collective = schedule::Collective::kAllGather};
  }));
  EXPECT_EQ(tensors, before);
}

INSTANTIATE_TEST_SUITE_P(Ways, BrokenLinks,
                         ::testing::Values(Case{"Cut", {Fault::Kind::kCut, false}},
                                           Case{"DataStall", {Fault::Kind::kStall, true}}),
                         [](const auto& each) { return each.param.name; });

// Rank 0 is through with a broadcast long before rank 2, and waits for it at the barrier for longer than the timeout:
// nothing comes to it, but the others move on.
TEST(SlowLinks, NobodyGivesUpWhileTheOthersMoveOn) {
  constexpr double kTimeout = 1;  // seconds
  Proxied ranks(3, 2, {.timeout_s = kTimeout}, {Fault::Kind::kSlow, true});
  std::vector<std::vector<float>> tensors(3, std::vector<float>(4'000'000));
  tensors[0].assign(tensors[0].size(), 3);
  std::vector<std::future<Nanoseconds>> waiting;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    waiting.push_back(std::async(std::launch::async, [&, rank] {
      PeerGroup& group = *ranks.groups[rank];
      CollectiveRequest broadcast = in_place(tensors[rank]);
      broadcast.collective = schedule::Collective::kBroadcast;
      const auto first = group.submit(broadcast);
      const auto second =
          group.submit({.collective = schedule::Collective::kBarrier, .algorithm = {.name = "dissemination"}});
      auto error = finish(group, *first);
      EXPECT_FALSE(error) << error->message;
      const Nanoseconds through = now();
      error = finish(group, *second);
      EXPECT_FALSE(error) << error->message;
      return now() - through;
    }));
  }
  const Nanoseconds waited = waiting[0].get();
  for (const std::size_t rank : {1u, 2u}) waiting[rank].get();
  for (const auto& tensor : tensors) EXPECT_EQ(tensor, tensors[0]);
  if (waited < from_seconds(kTimeout))
    GTEST_SKIP() << "rank 0 waited no longer than the timeout: this machine is too busy to tell";
}

}  // namespace
}  // namespace netfold::group

// Every collective through a switch, the frame switch and trees of switches, beside each other and however the network
// misbehaves: each rank ends with what the collective's definition says, and what it handed over is unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/collective_steps.h"
#include "protocol/tensors.h"
#include "protocol/tree_world.h"
#include "protocol/world.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

using schedule::Collective;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class AnyWorld>
void expect_all_right(AnyWorld& world, std::uint16_t ranks, std::size_t count_max, std::uint64_t seed,
                      const Fold& fold) {
  Prng prng(seed);
  auto steps = random_steps(ranks, count_max, prng, fold);
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    for (Step& step : steps) {
      step.submit(rank, [&](std::uint16_t of, const group::CollectiveRequest& request) { world.submit(of, request); });
    }
  }
  ASSERT_TRUE(world.run(kDay)) << "not done within a day of virtual time";
  EXPECT_THAT(world.mismatches(), IsEmpty());
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    for (const Step& step : steps) step.expect_right(rank);
  }
}

// Through the sockets' switch and through the frame switch alike.
class Collectives : public ::testing::TestWithParam<bool> {
 protected:
  static void expect_right(WorldOptions options, std::size_t count_max) {
    options.frames = GetParam();
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << options.seed << " world " << options.world << " slots "
                                      << options.slots << " shards " << options.shards);
    World world(options);
    expect_all_right(world, options.world, count_max, options.seed, plain);
  }
};
INSTANTIATE_TEST_SUITE_P(Switches, Collectives, ::testing::Bool(),
                         [](const auto& switches) { return switches.param ? "Frames" : "Sockets"; });

TEST_P(Collectives, AreRightOverACleanNetwork) {
  for (std::uint16_t world = 1; world <= 5; ++world) {
    expect_right({.world = world, .seed = random_seed() + world}, 2000);
  }
}

TEST_P(Collectives, AreRightHoweverTheNetworkMisbehaves) {
  for (std::uint64_t seed = random_seed(), last = seed + 6; seed < last; ++seed) {
    Prng prng(seed);
    WorldOptions options{.seed = seed};
    options.world = static_cast<std::uint16_t>(2 + prng.below(5));
    options.slots = 1u << (2 + prng.below(5));
    options.shards = static_cast<std::uint16_t>(1u << prng.below(2));
    options.tagged = prng.below(2) == 0;
    options.first_chunk = static_cast<std::uint32_t>(prng.next());
    options.faults = {.loss = 0.1, .duplicate = 0.1, .reorder = 0.2};
    expect_right(options, 1500);
  }
}

TEST(CollectivesInTrees, AreRightHoweverTheNetworkMisbehaves) {
  for (std::uint64_t seed = random_seed(), last = seed + 8; seed < last; ++seed) {
    Prng prng(seed);
    const auto ranks = static_cast<std::uint16_t>(2 + prng.below(7));
    const Shape shape = random_shape(ranks, 3, prng);
    TreeOptions options{.seed = seed};
    options.shards_max = 2;
    options.tagged = prng.below(2) == 0;
    if (seed % 2 == 0) options.faults = {.loss = 0.05, .duplicate = 0.05, .reorder = 0.1};
    options.frames = prng.unit();
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed << " " << shape.text());
    TreeWorld world(shape, options);
    expect_all_right(world, ranks, 800, seed, [&](const auto& tensors) { return fold_by(shape, tensors); });
  }
}

TEST(CollectivesThrough, OwnersReceiveOnlyTheirPart) {
  constexpr std::uint16_t kWorld = 4;
  World world({.world = kWorld, .payload_bytes = 1024});
  Prng prng(1);
  Step scatter(Collective::kReduceScatter, kWorld, 64 * 1024, prng, plain);
  for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
    scatter.submit(rank, [&](std::uint16_t of, const group::CollectiveRequest& request) { world.submit(of, request); });
  }
  ASSERT_TRUE(world.run(kDay));
  const auto& stats = world.link_of(0).stats();
  EXPECT_GT(stats.sent_bytes, 4u * 64 * 1024 * kWorld);
  EXPECT_LT(stats.received_bytes, 4u * 64 * 1024 * 5 / 4) << "a quarter of the tensor, and short packets";
}

TEST(CollectivesThrough, AnUnfinishedOneLeavesWhatWasHandedOver) {
  constexpr std::uint16_t kWorld = 3;
  for (std::uint64_t seed = random_seed(), last = seed + 12; seed < last; ++seed) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    Prng prng(seed);
    World world({.world = kWorld, .seed = seed});
    auto steps = random_steps(kWorld, 3000, prng, plain);
    std::vector<Step> before = steps;
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      // Rank 2 stops half way: it calls only the first of them.
      for (std::size_t at = 0; at < (rank == 2 ? steps.size() / 2 : steps.size()); ++at) {
        steps[at].submit(rank,
                         [&](std::uint16_t of, const group::CollectiveRequest& request) { world.submit(of, request); });
      }
    }
    world.run(2 * kSecond);
    const auto unfinished = world.worker(0).abandon();
    EXPECT_FALSE(unfinished.empty());
    for (const auto ticket : unfinished) {
      const Step &now = steps[ticket - 1], &then = before[ticket - 1];
      const bool reads = now.collective != Collective::kBroadcast || now.root == 0;
      if (!reads) continue;
      const std::size_t own = 0;  // of rank 0
      EXPECT_EQ(now.in[0], then.in[0]) << schedule::name_of(now.collective);
      if (!now.in[0].empty() || now.count == 0) continue;
      EXPECT_EQ(part_of(now.out[0], own, now.count), part_of(then.out[0], own, now.count));
    }
  }
}

}  // namespace
}  // namespace netfold::tests

// The fold is right however the network misbehaves: packets lost, duplicated, reordered and held back at will, late
// duplicates of earlier rounds included. Every case replays from its seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/tensors.h"
#include "protocol/world.h"
#include "support/random_seed.h"
#include "support/same_bits.h"
#include "testing/plain_fold.h"

namespace netfold::tests {
namespace {

struct AllReduceCase {
  WorldOptions options;
  std::size_t tensors = 3;
  std::size_t count_max = 5000;
};

// Everything holds through the sockets' switch and through the frame switch alike.
class AllReduce : public ::testing::TestWithParam<bool> {
 protected:
  static WorldOptions here(WorldOptions options) {
    options.frames = GetParam();
    return options;
  }
  static void expect_right_sums(AllReduceCase test);
};
INSTANTIATE_TEST_SUITE_P(Switches, AllReduce, ::testing::Bool(),
                         [](const auto& switches) { return switches.param ? "Frames" : "Sockets"; });

// Several tensors of odd sizes in flight at once; every rank must end with the bits of the plain fold.
void AllReduce::expect_right_sums(AllReduceCase test) {
  test.options = here(test.options);
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << test.options.seed << " world " << test.options.world
                                    << " slots " << test.options.slots << " shards " << test.options.shards);
  World world(test.options);
  Prng prng(test.options.seed);
  std::vector<std::vector<std::vector<float>>> tensors, expected;
  for (std::size_t t = 0; t < test.tensors; ++t) {
    tensors.push_back(random_tensors(test.options.world, 1 + prng.below(test.count_max), prng));
    expected.push_back({netfold::testing::plain_fold(tensors.back(), 0, test.options.world)});
  }
  for (std::uint16_t rank = 0; rank < test.options.world; ++rank) {
    for (auto& tensor : tensors) world.submit(rank, in_place(tensor[rank]));
  }
  ASSERT_TRUE(world.run(kDay)) << "not done within a day of virtual time";
  for (std::size_t t = 0; t < test.tensors; ++t) {
    for (std::uint16_t rank = 0; rank < test.options.world; ++rank) {
      ASSERT_TRUE(are_same_bits(tensors[t][rank], expected[t][0])) << "tensor " << t << " on rank " << rank;
    }
  }
}

TEST_P(AllReduce, IsRightOnACleanNetwork) {
  for (const std::uint16_t world : {1, 2, 3, 4, 5, 7, 8, 16}) {
    expect_right_sums({.options = {.world = world, .seed = world}});
  }
}

TEST_P(AllReduce, SendsEachContributionOnceOnACleanNetwork) {
  World world(here({.world = 4, .payload_bytes = 1456}));
  Prng prng(1);
  auto tensors = random_tensors(4, 364 * 100, prng);
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(tensors[rank]));
  ASSERT_TRUE(world.run(kSecond));
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    const group::DataPathStats stats = world.worker(rank).stats();
    EXPECT_LT(stats.window.echoes, 15u);
    EXPECT_EQ(stats.link.sent_packets, 100u + stats.window.echoes);
    EXPECT_EQ(stats.link.received_packets, 100u + stats.window.echoes);
  }
}

TEST_P(AllReduce, IsRightWhateverTheNetworkDoes) {
  for (const std::uint64_t seed : random_seeds(150)) {
    Prng prng(seed);
    AllReduceCase test;
    test.options.seed = seed;
    test.options.world = static_cast<std::uint16_t>(1 + prng.below(9));
    test.options.slots = 1u << (2 + prng.below(6));
    test.options.shards = static_cast<std::uint16_t>(1u << prng.below(3));
    test.options.payload_bytes = static_cast<std::uint16_t>(16 + 4 * prng.below(100));
    test.options.tagged = prng.chance(0.3);
    test.options.host = prng.chance(0.5);
    test.options.first_chunk = static_cast<std::uint32_t>(prng.next());
    test.options.faults = {.loss = prng.unit() * 0.2,
                           .duplicate = prng.unit() * 0.2,
                           .reorder = prng.unit() * 0.3,
                           .hold_max = static_cast<Nanoseconds>(prng.below(50)) * kMillisecond};
    expect_right_sums(test);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Few slots and packets held back for long: duplicates of rounds long past arrive all the time.
TEST_P(AllReduce, LateDuplicatesOfEarlierRoundsChangeNothing) {
  for (const std::uint64_t seed : random_seeds(30)) {
    AllReduceCase test;
    test.options = {.world = 3, .slots = 4, .payload_bytes = 64, .seed = seed};
    test.options.faults = {.loss = 0.02, .duplicate = 0.4, .reorder = 0.4, .hold_max = 300 * kMillisecond};
    test.count_max = 3000;
    expect_right_sums(test);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(AllReduce, ChunkNumbersWrap) {
  for (const std::uint32_t first_chunk : {0xffffffffu, 0xfffffff0u, 0xffffff01u, 0x7ffffff3u}) {
    for (const std::uint16_t shards : {1, 2, 4}) {
      expect_right_sums({.options = {.world = 3,
                                     .slots = 16,
                                     .shards = shards,
                                     .payload_bytes = 64,
                                     .tagged = shards != 1,
                                     .first_chunk = first_chunk,
                                     .faults = {.loss = 0.05, .duplicate = 0.1, .reorder = 0.1},
                                     .seed = first_chunk + shards,
                                     .host = true}});
    }
  }
}

TEST_P(AllReduce, BfpGivesTheSameBitsOnEveryRank) {
  World world(
      here({.world = 5, .payload_bytes = 255, .faults = {.loss = 0.05, .duplicate = 0.05, .reorder = 0.1}, .seed = 9}));
  Prng prng(9);
  auto tensors = random_tensors(5, 4321, prng);
  for (std::uint16_t rank = 0; rank < 5; ++rank) {
    world.submit(rank, in_place(tensors[rank], numbers::Format::kBfp));
  }
  ASSERT_TRUE(world.run(100 * kSecond));
  for (std::uint16_t rank = 1; rank < 5; ++rank) EXPECT_EQ(tensors[0], tensors[rank]);
}

TEST_P(AllReduce, WorkersThatDisagreeOnALengthAreToldBoth) {
  World world(here({.world = 2}));
  std::vector<float> a(100, 1.0f), b(200, 2.0f);
  world.submit(0, in_place(a));
  world.submit(1, in_place(b));
  EXPECT_FALSE(world.run(kSecond));
  ASSERT_FALSE(world.mismatches().empty());
  EXPECT_THAT(world.mismatches()[0], ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(world.mismatches()[0], ::testing::HasSubstr("rank 0"));
  for (std::uint16_t rank : {0, 1}) world.worker(rank).abandon();
  EXPECT_EQ(a, std::vector<float>(100, 1.0f));
  EXPECT_EQ(b, std::vector<float>(200, 2.0f));
}

TEST_P(AllReduce, WorkersThatDisagreeOnTheOperationAreToldBoth) {
  World world(here({.world = 2}));
  std::vector<float> a(100, 1.0f), b(100, 2.0f);
  auto averages = in_place(b);
  averages.average = true;
  world.submit(0, in_place(a));
  world.submit(1, averages);
  EXPECT_FALSE(world.run(kSecond));
  ASSERT_FALSE(world.mismatches().empty());
  EXPECT_THAT(world.mismatches()[0], ::testing::HasSubstr("64 fp32 elements to all-reduce:"));
  EXPECT_THAT(world.mismatches()[0], ::testing::HasSubstr("64 fp32 elements to all-reduce and average in chunk 0"));
  for (std::uint16_t rank : {0, 1}) world.worker(rank).abandon();
  EXPECT_EQ(a, std::vector<float>(100, 1.0f));
  EXPECT_EQ(b, std::vector<float>(100, 2.0f));
}

TEST_P(AllReduce, AMissingWorkerIsNamedAndTensorsAreAsTheyWere) {
  World world(here({.world = 3, .slots = 8}));
  Prng prng(4);
  auto tensors = random_tensors(3, 5000, prng);
  const auto before = tensors;
  for (std::uint16_t rank = 0; rank < 3; ++rank) world.submit(rank, in_place(tensors[rank]));
  // Half of rank 2's tensor gets through, then it falls silent.
  for (int i = 0; i < 5; ++i) ASSERT_FALSE(world.run(kMicrosecond));
  world.stop_worker(2);
  ASSERT_FALSE(world.run(3 * kSecond));
  for (const std::uint16_t rank : {0, 1}) {
    const auto error = world.worker(rank).overdue(world.time(), kSecond, "sw:1");
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->rank, 2) << error->message;
    EXPECT_FALSE(world.worker(rank).silent(world.time(), kSecond, "sw:1")) << "the switch answers";
    EXPECT_THAT(error->message, ::testing::HasSubstr("rank 2"));
    EXPECT_EQ(world.worker(rank).abandon().size(), 1u);
    EXPECT_EQ(tensors[rank], before[rank]);
  }
}

TEST_P(AllReduce, ADeadSwitchIsNamed) {
  World world(here({.world = 2, .faults = {.loss = 0.999}}));
  std::vector<float> a(50, 1.0f), b(50, 2.0f);
  world.submit(0, in_place(a));
  world.submit(1, in_place(b));
  ASSERT_FALSE(world.run(2 * kSecond));
  const auto error = world.worker(0).overdue(world.time() + kSecond, kSecond, "10.0.0.9:7171");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(error->message, ::testing::HasSubstr("10.0.0.9:7171"));
}

TEST_P(AllReduce, ASilentSwitchIsFoundOutBeforeTheTimeout) {
  World world(here({.world = 2, .faults = {.loss = 1}}));
  std::vector<float> a(50, 1.0f), b(50, 2.0f);
  world.submit(0, in_place(a));
  world.submit(1, in_place(b));
  const Nanoseconds longest = 1500 * kMillisecond;
  ASSERT_FALSE(world.run(kSecond));
  EXPECT_FALSE(world.worker(0).silent(world.time(), longest, "10.0.0.9:7171"));
  ASSERT_FALSE(world.run(kSecond));
  const auto error = world.worker(0).silent(world.time(), longest, "10.0.0.9:7171");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(error->message, ::testing::HasSubstr("10.0.0.9:7171"));
  // A rank that did not run for a while has not asked.
  const Nanoseconds later = world.time() + 10 * kSecond;
  world.worker(0).pump(later);
  EXPECT_FALSE(world.worker(0).silent(later, longest, "10.0.0.9:7171"));
}

}  // namespace
}  // namespace netfold::tests

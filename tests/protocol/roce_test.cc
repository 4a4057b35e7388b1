// The fold of RoCE workers is right however the network misbehaves: frames lost, doubled, reordered and held back at
// will, sequence numbers that wrap, connections that begin anew. Every case replays from its seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "protocol/roce_world.h"
#include "protocol/tensors.h"
#include "support/random_seed.h"
#include "support/same_bits.h"
#include "testing/plain_fold.h"

namespace netfold::tests {
namespace {

using wire::roce::Version;
constexpr Nanoseconds kHour = 3600 * kSecond;

struct RoceCase {
  RoceWorldOptions options;
  std::size_t tensors = 2;
  std::size_t count_max = 20000;
};

// Several tensors of odd sizes in flight at once, in every job; every rank must end with the bits of the plain fold.
void expect_right_sums(RoceWorld& world, const RoceWorldOptions& options, std::size_t tensor_count,
                       std::size_t count_max, Prng& prng) {
  std::vector<std::vector<std::vector<float>>> tensors;
  std::vector<std::vector<float>> expected;
  for (std::size_t t = 0; t < tensor_count * options.jobs; ++t) {
    tensors.push_back(random_tensors(options.world, 1 + prng.below(count_max), prng));
    expected.push_back(netfold::testing::plain_fold(tensors.back(), 0, options.world));
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::size_t first = t % options.jobs * options.world;
    for (std::uint16_t rank = 0; rank < options.world; ++rank) world.submit(first + rank, in_place(tensors[t][rank]));
  }
  ASSERT_TRUE(world.run(kHour)) << "not done within an hour of virtual time";
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::uint16_t rank = 0; rank < options.world; ++rank) {
      ASSERT_TRUE(are_same_bits(tensors[t][rank], expected[t])) << "tensor " << t << " on rank " << rank;
    }
  }
}

void expect_right_sums(const RoceCase& test) {
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << test.options.seed << " world " << test.options.world
                                    << " jobs " << test.options.jobs);
  RoceWorld world(test.options);
  Prng prng(test.options.seed);
  expect_right_sums(world, test.options, test.tensors, test.count_max, prng);
  EXPECT_EQ(world.handler().held_frames(), 0u);
  EXPECT_EQ(world.buffers_in_use(), 0u);
}

TEST(Roce, FoldsOnACleanNetworkAndSendsEachFrameOnce) {
  for (const std::uint16_t world : {2, 3, 4, 5, 8, 16}) {
    RoceWorldOptions options{.world = world, .seed = world};
    RoceWorld network(options);
    Prng prng(world);
    expect_right_sums(network, options, 2, 100000, prng);
    for (std::size_t rank = 0; rank < world; ++rank) {
      EXPECT_EQ(network.channel(rank).counters()["resent_writes"], 0) << "rank " << rank << " of " << world;
    }
    EXPECT_EQ(network.handler().count(switching::RoceVerdict::kAnswered), 0u);
  }
}

// A switch on a small FPGA holds short messages only. Eight packets hold 251 elements and seven times 256.
TEST(Roce, CutsTensorsIntoMessagesAsShortAsAsked) {
  constexpr std::size_t kElements = 251 + 7 * 256;
  const RoceWorldOptions options{.world = 2, .message_packets = 8};
  RoceWorld network(options);
  Prng prng(1);
  auto tensors = random_tensors(2, 3 * kElements, prng);
  const auto expected = netfold::testing::plain_fold(tensors, 0, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) network.submit(rank, in_place(tensors[rank]));
  ASSERT_TRUE(network.run(kHour));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(tensors[rank], expected);
    EXPECT_EQ(network.endpoint(rank).sender().posted(), 3u);
  }
}

TEST(Roce, IsRightWhateverTheNetworkDoes) {
  for (const std::uint64_t seed : random_seeds(120)) {
    Prng prng(seed);
    RoceCase test;
    test.options.seed = seed;
    test.options.world = static_cast<std::uint16_t>(2 + prng.below(7));
    test.options.jobs = static_cast<std::uint16_t>(1 + prng.below(2));
    draw_network(prng, test.options);
    test.count_max = prng.chance(0.2) ? 150000 : 4000;
    expect_right_sums(test);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Roce, IsRightAtOnePercentLossWithEightWorkers) {
  for (const Version version : {Version::kV1, Version::kV2}) {
    RoceCase test;
    test.options = {.world = 8, .version = version, .faults = {.loss = 0.01}, .seed = 8};
    test.count_max = 300000;
    expect_right_sums(test);
  }
}

TEST(Roce, SequenceNumbersWrap) {
  for (const std::uint32_t first_psn : {0xffffffu, 0xfffffeu, 0xffff80u, 0xfffe01u, 0x7ffff0u}) {
    expect_right_sums({.options = {.world = 3,
                                   .first_psn = first_psn,
                                   .faults = {.loss = 0.03, .duplicate = 0.05, .reorder = 0.05},
                                   .seed = first_psn},
                       .count_max = 200000});
  }
}

TEST(Roce, EveryFormatGivesTheSameBitsOnEveryRank) {
  for (const auto format : {numbers::Format::kBfp, numbers::Format::kFp16, numbers::Format::kBf16}) {
    RoceWorldOptions options{.world = 5, .faults = {.loss = 0.03, .duplicate = 0.03}, .seed = 9};
    for (const numbers::BfpShape shape : {numbers::BfpShape{16, 7}, {8, 2}, {128, 5}}) {
      options.bfp = shape;
      RoceWorld world(options);
      Prng prng(9);
      auto tensors = random_tensors(5, 130001, prng);
      for (std::uint16_t rank = 0; rank < 5; ++rank) world.submit(rank, in_place(tensors[rank], format));
      ASSERT_TRUE(world.run(kHour));
      for (std::uint16_t rank = 1; rank < 5; ++rank) {
        ASSERT_TRUE(are_same_bits(tensors[0], tensors[rank]));
      }
    }
  }
}

TEST(Roce, IntegersWrap) {
  RoceWorld world({.world = 3, .seed = 3});
  std::vector<std::vector<std::int32_t>> tensors(3, std::vector<std::int32_t>(40000, 0x7fffffff));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    world.submit(rank, {tensors[rank].data(), tensors[rank].data(), tensors[rank].size(), numbers::ElementType::kInt32,
                        numbers::Format::kInt32, false});
  }
  ASSERT_TRUE(world.run(kHour));
  EXPECT_EQ(tensors[2], std::vector<std::int32_t>(40000, static_cast<std::int32_t>(3u * 0x7fffffffu)));
}

TEST(Roce, AJobBeginsAnewInTheNextEpoch) {
  RoceWorldOptions options{.world = 4, .faults = {.loss = 0.05, .duplicate = 0.1, .reorder = 0.1}, .seed = 21};
  RoceWorld world(options);
  Prng prng(21);
  for (std::uint16_t epoch = 1; epoch <= 5; ++epoch) {
    auto tensors = random_tensors(4, 200000, prng);
    for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(tensors[rank]));
    for (std::uint64_t steps = prng.below(40); steps > 0; --steps) world.run(kMicrosecond);
    world.restart_job(0, static_cast<std::uint16_t>(epoch + 1));  // in the middle
    expect_right_sums(world, options, 2, 50000, prng);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
  }
  EXPECT_EQ(world.buffers_in_use(), 0u);
}

TEST(Roce, AMissingWorkerIsNamedItsPeersBuffersAreFreedAndTensorsAreAsTheyWere) {
  RoceWorldOptions options{.world = 3, .timeout = kSecond, .roce = {.age_max = 2 * kSecond}, .seed = 4};
  RoceWorld world(options);
  Prng prng(4);
  auto tensors = random_tensors(3, 400000, prng);
  const auto before = tensors;
  for (std::uint16_t rank = 0; rank < 3; ++rank) world.submit(rank, in_place(tensors[rank]));
  for (int i = 0; i < 3; ++i) ASSERT_FALSE(world.run(kMicrosecond));
  world.stop_worker(2);
  ASSERT_FALSE(world.run(1500 * kMillisecond));
  EXPECT_GT(world.handler().held_frames(), 0u);
  for (const std::size_t rank : {0, 1}) {
    const auto error = world.error(rank);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->rank, 2) << error->message;
    EXPECT_EQ(world.session(rank).abort(*error, world.time()).size(), 1u);
    EXPECT_EQ(tensors[rank], before[rank]);
    world.stop_worker(rank);
  }
  world.restart_job(0, 2);
  expect_right_sums(world, options, 2, 50000, prng);
  EXPECT_EQ(world.buffers_in_use(), 0u);
}

TEST(Roce, WorkersThatDisagreeAreToldBoth) {
  RoceWorld world({.world = 2, .seed = 5});
  std::vector<float> a(5000, 1.0f), b(9000, 2.0f);
  world.submit(0, in_place(a));
  world.submit(1, in_place(b));
  EXPECT_FALSE(world.run(kSecond));
  const auto& error = world.error(1) ? world.error(1) : world.error(0);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kMismatch);
  EXPECT_THAT(error->message, ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(error->message, ::testing::HasSubstr("rank 0"));
  EXPECT_GT(world.handler().count(switching::RoceVerdict::kMismatch), 0u);
}

// Without the number of workers in the message, rank 0's elements would pass for the sum of both.
TEST(Roce, ASwitchThatFoldsOtherPortsThanTheJobsIsAnErrorAtOnce) {
  for (const std::uint32_t ports : {0b1u, 0b111u}) {
    RoceWorld world({.world = 2, .jobs = 2, .version = Version::kV2, .seed = 9});
    ASSERT_TRUE(world.settings().set(0, {ports, true}));
    std::vector<float> a(5000, 1.0f), b(5000, 2.0f);
    world.submit(0, in_place(a));
    world.submit(1, in_place(b));
    EXPECT_FALSE(world.run(kSecond));
    const auto& error = world.error(0) ? world.error(0) : world.error(1);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::kSwitchFailed);
    EXPECT_THAT(error->message, ::testing::HasSubstr("job 0, which has 2 ranks"));
  }
}

// Every job belongs to one of the switch's threads, whichever of them receives its frames.
TEST(Roce, SeveralThreadsShareTheJobs) {
  for (const std::uint64_t seed : random_seeds(10)) {
    Prng prng(seed);
    RoceWorldOptions options{.world = static_cast<std::uint16_t>(2 + prng.below(4)),
                             .jobs = 4,
                             .version = prng.chance(0.5) ? Version::kV2 : Version::kV1,
                             .faults = {.loss = 0.02, .duplicate = 0.02, .reorder = 0.05},
                             .threads = static_cast<std::uint16_t>(prng.chance(0.5) ? 2 : 4),
                             .seed = seed};
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    RoceWorld world(options);
    expect_right_sums(world, options, 2, 20000, prng);
    if (::testing::Test::HasFatalFailure()) return;
    for (std::uint16_t thread = 0; thread < options.threads; ++thread) {
      EXPECT_GT(world.handler(thread).count(switching::RoceVerdict::kFolded), 0u);
      EXPECT_EQ(world.handler(thread).held_frames(), 0u);
      std::uint64_t handed_over = 0, acknowledged = 0;
      for (link::PortNumber port = 0; port < options.world * options.jobs; ++port) {
        handed_over += world.pipeline(thread).counters(port).handed_over.get();
        acknowledged += world.pipeline(thread).counters(port).forwarded.get();
      }
      EXPECT_GT(handed_over, 0u);
      EXPECT_GT(acknowledged, 0u) << "acknowledgements pass where they came";
    }
    EXPECT_EQ(world.buffers_in_use(), 0u);
  }
}

TEST(RoceOwners, AreFoundByPortAddressAndQueuePair) {
  switching::RoceOwners owners;
  Prng prng(3);
  std::vector<std::pair<switching::RoceOwners::Connection, std::uint16_t>> set;
  for (int i = 0; i < 400; ++i) {
    set.push_back({{static_cast<link::PortNumber>(prng.below(26)), prng.next() >> 16,
                    static_cast<std::uint32_t>(prng.below(1 << 24))},
                   static_cast<std::uint16_t>(prng.below(8))});
    owners.set(set.back().first, 7);
    owners.set(set.back().first, set.back().second);  // its next job is another thread's
  }
  for (const auto& [connection, thread] : set) {
    EXPECT_EQ(owners.find(connection), thread);
    auto other = connection;
    other.port = static_cast<link::PortNumber>(connection.port + 26);
    EXPECT_FALSE(owners.find(other)) << "of another port";
  }
}

// A Write First names job 7, but comes over the connection that rank 0 of job 0 folds over. Job 7 has no other workers,
// so it never has a sum. The packets of rank 0 that follow must not keep job 7 alive.
TEST(Roce, AJobThatNeverHasASumGivesAConnectionBack) {
  for (const Version version : {Version::kV1, Version::kV2}) {
    RoceWorldOptions options{.world = 3, .version = version};
    RoceWorld world(options);
    wire::roce::AggregationHeader header;
    header.format = numbers::Format::kFp32;
    header.job = 7;
    header.epoch = 1;
    header.length_bytes = 4000;
    world.port(0).arrive(message_frame(world.channel(0).card().sending, world.channel(1).card().receiving, header, 1));
    world.run(kMicrosecond);
    Prng prng(7);
    expect_right_sums(world, options, 1, 3000, prng);
    EXPECT_GE(world.time(), 2 * kSecond) << "job 7 kept the connection for a second";
  }
}

// Ports are given to a job while another one folds, and taken away again.
TEST(Roce, PortsChangeWhileAnotherJobFolds) {
  RoceWorldOptions options{.world = 4, .jobs = 2, .faults = {.loss = 0.02}, .seed = 6};
  RoceWorld world(options);
  Prng prng(6);
  auto running = random_tensors(4, 300000, prng);
  const auto expected = netfold::testing::plain_fold(running, 0, 4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(running[rank]));
  for (int i = 0; i < 10; ++i) world.run(kMicrosecond);
  ASSERT_TRUE(world.settings().set(1, {0xf, true}));   // the other job's ports: wrong ones for a while
  ASSERT_TRUE(world.settings().set(1, {0xf0, true}));  // and right again
  world.defaults().folding_ports = 0x3;
  auto other = random_tensors(4, 100000, prng);
  const auto other_expected = netfold::testing::plain_fold(other, 0, 4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(4 + rank, in_place(other[rank]));
  ASSERT_TRUE(world.run(kHour));
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(are_same_bits(running[rank], expected));
    EXPECT_TRUE(are_same_bits(other[rank], other_expected));
  }
}

}  // namespace
}  // namespace netfold::tests

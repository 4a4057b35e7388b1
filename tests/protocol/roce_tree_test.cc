// RoCE workers at a tree of switches get the sum of all of them, however the network misbehaves on any link, and a link
// between switches carries each packet once for all workers below it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numbers/codec.h"
#include "protocol/roce_world.h"
#include "protocol/tensors.h"
#include "support/random_seed.h"
#include "support/same_bits.h"
#include "testing/plain_fold.h"

namespace netfold::tests {
namespace {

using numbers::ElementType;
using numbers::Format;
using switching::RoceVerdict;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using wire::roce::Version;

std::size_t packets_of(std::size_t bytes) {
  std::size_t packets = 0;
  for (; bytes > 0; bytes -= std::min(bytes, wire::roce::kMessageRoom)) {
    const std::size_t message = std::max(std::min(bytes, wire::roce::kMessageRoom), wire::roce::kFirstRoom + 4);
    packets += (wire::roce::kAggregationBytes + message + wire::roce::kPathMtu - 1) / wire::roce::kPathMtu;
  }
  return packets;
}

std::vector<float> rounded(const std::vector<float>& numbers, numbers::WireFormat wire, std::uint32_t divide_by = 1) {
  std::vector<std::byte> room(numbers::encoded_bytes(wire, numbers.size()));
  numbers::encode(wire, ElementType::kFp32, numbers.data(), numbers.size(), room.data());
  std::vector<float> result(numbers.size());
  numbers::decode(wire, ElementType::kFp32, room.data(), numbers.size(), result.data(), divide_by);
  return result;
}

// By its definition: each switch folds what is below it in fp32, and rounds the sum to the format.
std::vector<float> sum_of_tree(std::vector<std::vector<float>> below, const RoceWorldOptions& options,
                               numbers::WireFormat wire, bool average) {
  for (auto& tensor : below) tensor = rounded(tensor, wire);
  std::vector<std::uint16_t> levels = options.levels;
  levels.push_back(1);
  for (const std::uint16_t switches : levels) {
    const std::size_t mates = below.size() / switches;
    std::vector<std::vector<float>> sums;
    for (std::size_t first = 0; first < below.size(); first += mates) {
      sums.push_back(rounded(netfold::testing::plain_fold(below, first, first + mates), wire));
    }
    below = std::move(sums);
  }
  return rounded(below[0], wire, average ? options.world : 1u);
}

struct TreeCase {
  RoceWorldOptions options;
  Format format = Format::kFp32;
  bool average = false;
  std::size_t tensors = 2, count_max = 20000;
};

void expect_right_sums(RoceWorld& world, const TreeCase& test, Prng& prng) {
  const RoceWorldOptions& options = test.options;
  const numbers::WireFormat wire{test.format, options.bfp};
  std::vector<std::vector<std::vector<float>>> tensors;
  std::vector<std::vector<float>> right;
  for (std::size_t t = 0; t < test.tensors * options.jobs; ++t) {
    tensors.push_back(random_tensors(options.world, 1 + prng.below(test.count_max), prng));
    right.push_back(sum_of_tree(tensors.back(), options, wire, test.average));
    for (std::uint16_t rank = 0; rank < options.world; ++rank) {
      auto& tensor = tensors.back()[rank];
      world.submit(t % options.jobs * options.world + rank,
                   {tensor.data(), tensor.data(), tensor.size(), ElementType::kFp32, test.format, test.average});
    }
  }
  ASSERT_TRUE(world.run(kDay)) << "not done within a day of virtual time";
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::uint16_t rank = 0; rank < options.world; ++rank) {
      ASSERT_TRUE(are_same_bits(tensors[t][rank], right[t])) << "tensor " << t << " on rank " << rank;
    }
  }
}

void expect_nothing_left(RoceWorld& world) {
  for (std::size_t each = 0; each < world.switches(); ++each) EXPECT_EQ(world.handler(0, each).held_frames(), 0u);
  EXPECT_EQ(world.buffers_in_use(), 0u);
}

void expect_right_sums(const TreeCase& test) {
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << test.options.seed << " world " << test.options.world
                                    << " levels " << ::testing::PrintToString(test.options.levels) << " jobs "
                                    << test.options.jobs << " " << numbers::name_of(test.format));
  RoceWorld world(test.options);
  Prng prng(test.options.seed);
  expect_right_sums(world, test, prng);
  expect_nothing_left(world);
}

TEST(RoceTree, ALinkBetweenSwitchesCarriesEachPacketOnceForAllWorkersBelow) {
  for (const auto& [ranks, levels] : std::vector<std::pair<std::uint16_t, std::vector<std::uint16_t>>>{
           {2, {2}}, {4, {2}}, {6, {2}}, {6, {3}}, {8, {2}}, {16, {4}}, {8, {4, 2}}, {24, {12, 4, 2}}}) {
    for (const Version version : {Version::kV1, Version::kV2}) {
      const TreeCase test{.options = {.world = ranks, .version = version, .levels = levels, .seed = ranks}};
      RoceWorld world(test.options);
      constexpr std::size_t kCount = 100003;
      Prng prng(ranks);
      auto tensors = random_tensors(ranks, kCount, prng);
      const auto right = sum_of_tree(tensors, test.options, {}, false);
      for (std::uint16_t rank = 0; rank < ranks; ++rank) world.submit(rank, in_place(tensors[rank]));
      ASSERT_TRUE(world.run(kDay));
      for (const auto& tensor : tensors) ASSERT_TRUE(are_same_bits(tensor, right));
      for (std::size_t each = 0; each + 1 < world.switches(); ++each) {
        EXPECT_EQ(world.long_frames_up(each), packets_of(kCount * sizeof(float))) << each << " of " << ranks;
      }
      for (std::uint16_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(world.endpoint(rank).sender().stats().resent_packets, 0u) << rank;
      }
    }
  }
}

// Aligned blocks of ranks have the bits of one switch in fp32.
TEST(RoceTree, HasTheBitsOfOneSwitchForAlignedBlocks) {
  Prng prng(random_seed());
  const auto tensors = random_tensors(8, 30001, prng);
  const auto flat = netfold::testing::plain_fold(tensors, 0, 8);
  for (const std::vector<std::uint16_t>& levels : {std::vector<std::uint16_t>{}, {2}, {4}, {8}, {4, 2}}) {
    RoceWorld world({.world = 8, .version = Version::kV2, .levels = levels, .faults = {.loss = 0.01}});
    auto sums = tensors;
    for (std::uint16_t rank = 0; rank < 8; ++rank) world.submit(rank, in_place(sums[rank]));
    ASSERT_TRUE(world.run(kDay));
    for (const auto& sum : sums) EXPECT_TRUE(are_same_bits(sum, flat));
  }
}

TEST(RoceTree, IsRightWhateverTheNetworkDoes) {
  for (const std::uint64_t seed : random_seeds(120)) {
    Prng prng(seed);
    TreeCase test;
    const auto leaves = static_cast<std::uint16_t>(2 + prng.below(3));
    test.options.world = static_cast<std::uint16_t>(leaves * (1 + prng.below(4)));
    test.options.levels = {leaves};
    if (leaves == 4 && prng.chance(0.5)) test.options.levels = {4, 2};
    test.options.seed = seed;
    test.options.jobs = static_cast<std::uint16_t>(1 + prng.below(2));
    draw_network(prng, test.options);
    constexpr Format kFormats[] = {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp};
    test.format = kFormats[prng.below(4)];
    test.average = prng.chance(0.3);
    test.count_max = prng.chance(0.2) ? 100000 : 4000;
    expect_right_sums(test);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(RoceTree, AJobBeginsAnewInANewEpoch) {
  const TreeCase test{.options = {.world = 6, .levels = {3}, .faults = {.loss = 0.02}, .seed = 6}};
  RoceWorld world(test.options);
  Prng prng(6);
  expect_right_sums(world, test, prng);
  auto cut_short = random_tensors(6, 200000, prng);
  for (std::uint16_t rank = 0; rank < 6; ++rank) world.submit(rank, in_place(cut_short[rank]));
  world.run(kMillisecond);
  world.restart_job(0, 2);
  expect_right_sums(world, test, prng);
}

TEST(RoceTree, AJobWhoseWorkersAreAllAtOneLeafNeedsNoOtherSwitch) {
  RoceWorld world({.world = 4, .version = Version::kV2});
  ASSERT_TRUE(world.settings().set(0, {0b1111, true, 9}));
  Prng prng(1);
  auto tensors = random_tensors(4, 1000, prng);
  const auto right = netfold::testing::plain_fold(tensors, 0, 4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(tensors[rank]));
  ASSERT_TRUE(world.run(kSecond));
  for (const auto& tensor : tensors) EXPECT_TRUE(are_same_bits(tensor, right));
}

// It may come late, when the switch above knows the connection.
TEST(RoceTree, WhatALeafOnlyForwardedIsNoContributionAbove) {
  const TreeCase test{.options = {.world = 4, .version = Version::kV2, .levels = {2}}};
  RoceWorld world(test.options);
  Prng prng(1);
  expect_right_sums(world, test, prng);
  wire::roce::AggregationHeader header;
  header.length_bytes = 4000;
  const auto middle = message_frame(world.channel(1).card().sending, world.channel(2).card().receiving, header, 2);
  world.of_switch(2).port(0).arrive(middle);
  world.of_switch(2).settle(world.time());
  EXPECT_EQ(world.handler(0, 2).count(RoceVerdict::kSpoofed), 1u);
}

std::vector<float> ones(std::size_t count) {
  return std::vector<float>(count, 1);
}

// The leaf of a dead rank names it, and other leaves name no rank.
TEST(RoceTree, AWorkerThatDiesIsNamedByItsLeaf) {
  RoceWorld world({.world = 6, .version = Version::kV2, .levels = {2}, .timeout = 5 * kSecond});
  world.stop_worker(4);
  std::vector<std::vector<float>> tensors(6, ones(1000));
  for (std::uint16_t rank = 0; rank < 6; ++rank) world.submit(rank, in_place(tensors[rank]));
  world.run(kDay);
  for (const std::uint16_t rank : {3, 5}) {
    ASSERT_TRUE(world.error(rank));
    EXPECT_EQ(world.error(rank)->rank, 4) << world.error(rank)->message;
  }
  for (const std::uint16_t rank : {0, 1, 2}) {
    ASSERT_TRUE(world.error(rank));
    EXPECT_EQ(world.error(rank)->rank, kNoRank) << world.error(rank)->message;
    EXPECT_THAT(world.error(rank)->message, HasSubstr("no sum came"));
  }
}

// Both leaves are of one mind, and the switch above tells the last rank of one of them a rank of the other.
TEST(RoceTree, LeavesThatDisagreeAreTold) {
  RoceWorld world({.world = 4, .version = Version::kV2, .levels = {2}, .timeout = kSecond});
  std::vector<std::vector<float>> tensors;
  for (std::uint16_t rank = 0; rank < 4; ++rank) tensors.push_back(ones(rank < 2 ? 1000 : 1001));
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(tensors[rank]));
  world.run(kDay);
  ASSERT_TRUE(world.error(1) && world.error(3));
  const auto& told = world.error(1)->code == ErrorCode::kMismatch ? world.error(1) : world.error(3);
  EXPECT_THAT(told->message, HasSubstr("submit different collectives"));
  EXPECT_EQ(told->rank, &told == &world.error(1) ? 2 : 0);
}

// Where leaves have different numbers of workers they would not know their own ranks.
TEST(RoceTree, AJobThatDoesNotFillItsLeavesIsTold) {
  RoceWorld world({.world = 4, .version = Version::kV2, .levels = {2}, .timeout = kSecond});
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    ASSERT_TRUE(world.of_switch(leaf).jobs_settings().set(0, {0b111, true, 2}));  // 2 is the uplink, and does not count
  }
  ASSERT_TRUE(world.of_switch(2).jobs_settings().set(0, {0b1, true}));
  std::vector<std::vector<float>> tensors(4, ones(1000));
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(tensors[rank]));
  world.run(kDay);
  ASSERT_TRUE(world.error(1));
  EXPECT_THAT(world.error(1)->message, HasSubstr("folds 2 ports for job 0, which has 4 ranks"));
}

// A switch above that does not fold passes a leaf's sum on as it came. It must not be taken for the whole sum.
TEST(RoceTree, WhatWasNotSummedAboveIsDropped) {
  RoceWorld world({.world = 4, .levels = {2}, .timeout = 5 * kSecond});
  ASSERT_TRUE(world.of_switch(2).jobs_settings().set(0, {0b100, true}));  // no port with a leaf
  std::vector<std::vector<float>> tensors(4, ones(1000));
  for (std::uint16_t rank = 0; rank < 4; ++rank) world.submit(rank, in_place(tensors[rank]));
  EXPECT_FALSE(world.run(kDay));
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    EXPECT_GT(world.handler(0, leaf).count(RoceVerdict::kNotSummed), 0u);
  }
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(world.error(rank));
    EXPECT_THAT(world.error(rank)->message, AnyOf(HasSubstr("no sum came"), HasSubstr("does not fold at the ports")));
    EXPECT_THAT(tensors[rank], ::testing::Each(1));
  }
}

TEST(RoceTree, OneWayMessagesDoNotPassIt) {
  RoceWorld world({.world = 4, .version = Version::kV2, .levels = {2}, .one_way = true, .timeout = 2 * kSecond});
  std::vector<std::vector<float>> in(4, ones(4000)), out(4, ones(1000));
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    group::CollectiveRequest request{in[rank].data(), out[rank].data(), 1000};
    request.collective = schedule::Collective::kReduceScatter;
    world.submit(rank, request);
  }
  EXPECT_FALSE(world.run(kDay));
  EXPECT_GT(world.handler(0, 0).count(RoceVerdict::kBadHeader), 0u);
  ASSERT_TRUE(world.error(0));
  EXPECT_THAT(world.error(0)->message, HasSubstr("one-way"));
}

}  // namespace
}  // namespace netfold::tests

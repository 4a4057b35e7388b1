// A tree of switches gives the bits of its definition, in every format, however the network misbehaves on any link.
// Where the switches' blocks of ranks are aligned powers of two, these are the bits of one switch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numbers/codec.h"
#include "protocol/tensors.h"
#include "protocol/tree_world.h"
#include "support/random_seed.h"
#include "support/same_bits.h"

namespace netfold::tests {
namespace {

using numbers::ElementType;
using numbers::Format;
using switching::DropReason;
using ::testing::HasSubstr;

// Every rank must have this: each tensor as it travels, folded in fp32, rounded once.
std::vector<float> expected(const Shape& shape, const std::vector<std::vector<float>>& tensors,
                            numbers::WireFormat wire, bool average) {
  std::vector<std::vector<float>> widened = tensors;
  const std::size_t count = tensors[0].size();
  std::vector<std::byte> room(numbers::encoded_bytes(wire, count));
  for (auto& tensor : widened) {
    numbers::encode(wire, ElementType::kFp32, tensor.data(), count, room.data());
    numbers::decode(wire, ElementType::kFp32, room.data(), count, tensor.data());
  }
  std::vector<float> sum = fold_by(shape, widened);
  numbers::encode(wire, ElementType::kFp32, sum.data(), count, room.data());
  numbers::decode(wire, ElementType::kFp32, room.data(), count, sum.data(), average ? shape.ranks : 1u);
  return sum;
}

void expect_right_sums(const Shape& shape, const TreeOptions& options, Format format, std::size_t count_max,
                       bool average = false) {
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << options.seed << " " << shape.text() << " "
                                    << numbers::name_of(format) << " payload " << options.payload_bytes << " frames "
                                    << options.frames);
  TreeWorld world(shape, options);
  Prng prng(options.seed);
  std::vector<std::vector<std::vector<float>>> tensors;
  std::vector<std::vector<float>> right;
  for (int t = 0; t < 3; ++t) {
    tensors.push_back(random_tensors(shape.ranks, 1 + prng.below(count_max), prng));
    right.push_back(expected(shape, tensors.back(), {format, options.bfp}, average));
  }
  for (std::uint16_t rank = 0; rank < shape.ranks; ++rank) {
    for (auto& all : tensors) {
      auto& tensor = all[rank];
      world.submit(rank, {tensor.data(), tensor.data(), tensor.size(), ElementType::kFp32, format, average});
    }
  }
  ASSERT_TRUE(world.run(kDay)) << "not done within a day of virtual time";
  EXPECT_THAT(world.mismatches(), ::testing::IsEmpty());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::uint16_t rank = 0; rank < shape.ranks; ++rank) {
      ASSERT_TRUE(are_same_bits(tensors[t][rank], right[t])) << "tensor " << t << " on rank " << rank;
    }
  }
}

// Blocks of `block` ranks, a switch each, below one.
Shape two_levels(std::uint16_t world, std::uint16_t block) {
  std::vector<Shape> below;
  for (std::uint16_t first = 0; first < world; first = static_cast<std::uint16_t>(first + block)) {
    below.push_back(one_switch(first, std::min<std::uint16_t>(block, static_cast<std::uint16_t>(world - first))));
  }
  return switch_above(std::move(below));
}

TEST(Tree, IsRightForEveryWorldAndBlock) {
  for (std::uint16_t world = 2; world <= 17; ++world) {
    for (const std::uint16_t block : {1, 2, 3, 4, 8}) {
      if (block >= world) continue;
      const auto format = static_cast<Format>(1 + (world + block) % 5);
      if (format == Format::kInt32) continue;
      for (const double frames : {0.0, 1.0}) {
        expect_right_sums(two_levels(world, block), {.frames = frames, .seed = world * 100u + block}, format, 600);
      }
    }
  }
}

TEST(Tree, HasTheBitsOfOneSwitchForAlignedBlocks) {
  Prng prng(5);
  for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
    for (std::uint16_t world = 2; world <= 17; ++world) {
      const auto tensors = random_tensors(world, 257, prng);
      const auto flat = expected(one_switch(0, world), tensors, {format, {}}, false);
      for (const std::uint16_t block : {1, 2, 4, 8, 16}) {
        const auto tree = expected(two_levels(world, block), tensors, {format, {}}, false);
        ASSERT_TRUE(are_same_bits(flat, tree)) << world << " / " << block;
      }
    }
  }
}

TEST(Tree, HasAnOrderOfItsOwnForOtherBlocks) {
  Prng prng(5);
  const auto tensors = random_tensors(6, 1000, prng);
  EXPECT_NE(expected(one_switch(0, 6), tensors, {}, false), expected(two_levels(6, 3), tensors, {}, false));
}

TEST(Tree, IsRightWhateverTheNetworkDoes) {
  for (const std::uint64_t seed : random_seeds(120)) {
    Prng prng(seed);
    const Shape shape =
        random_shape(static_cast<std::uint16_t>(2 + prng.below(16)), 2 + static_cast<int>(prng.below(2)), prng);
    constexpr Format kFormats[] = {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp};
    TreeOptions options;
    options.seed = seed;
    options.slots = 1u << (2 + prng.below(6));
    options.shards_max = 4;
    options.payload_bytes = static_cast<std::uint16_t>(64 + 4 * prng.below(100));
    options.tagged = prng.chance(0.3);
    options.first_chunk = static_cast<std::uint32_t>(prng.next());
    options.faults = {.loss = prng.unit() * 0.15,
                      .duplicate = prng.unit() * 0.2,
                      .reorder = prng.unit() * 0.3,
                      .hold_max = static_cast<Nanoseconds>(prng.below(50)) * kMillisecond};
    const Format format = kFormats[prng.below(4)];
    const bool average = prng.chance(0.3);
    options.frames = prng.unit();
    expect_right_sums(shape, options, format, 2000, average);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Tree, SumsIntegers) {
  const Shape shape = two_levels(6, 2);
  TreeWorld world(shape, {});
  std::vector<std::vector<std::int32_t>> tensors(6, std::vector<std::int32_t>(300));
  for (std::size_t rank = 0; rank < 6; ++rank) {
    for (std::size_t i = 0; i < 300; ++i) tensors[rank][i] = static_cast<std::int32_t>(0x7fffff00 + rank * 1000 + i);
  }
  std::vector<std::uint32_t> right(300);
  for (std::size_t i = 0; i < 300; ++i) {
    for (std::size_t rank = 0; rank < 6; ++rank) right[i] += static_cast<std::uint32_t>(tensors[rank][i]);
  }
  for (std::uint16_t rank = 0; rank < 6; ++rank) {
    world.submit(rank, {tensors[rank].data(), tensors[rank].data(), 300, ElementType::kInt32, Format::kInt32, false});
  }
  ASSERT_TRUE(world.run(kSecond));
  for (const auto& tensor : tensors) EXPECT_TRUE(are_same_bits(tensor, right));
}

// Two switches of four workers below one: what the links carry.
struct EightRanks {
  TreeWorld world;
  Prng prng{1};
  std::vector<std::vector<float>> tensors;

  EightRanks(std::size_t chunks, double frames)
      : world(two_levels(8, 4), {.payload_bytes = 1456, .frames = frames}),
        tensors(random_tensors(8, 364 * chunks, prng)) {
    for (std::uint16_t rank = 0; rank < 8; ++rank) submit(rank);
  }
  void submit(std::uint16_t rank) {
    auto& tensor = tensors[rank];
    world.submit(rank, {tensor.data(), tensor.data(), tensor.size(), ElementType::kFp32, Format::kFp32, false});
  }
};

class TreeBelow : public ::testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(ASwitch, TreeBelow, ::testing::Values(0.0, 1.0),
                         [](const auto& frames) { return frames.param > 0 ? "OfFrames" : "OverSockets"; });

TEST_P(TreeBelow, CarriesEachSumOnceOnACleanNetwork) {
  EightRanks ranks(100, GetParam());
  ASSERT_TRUE(ranks.world.run(kSecond));
  const auto top = ranks.world.counters(0);
  EXPECT_EQ(top.contributions, 200u);
  EXPECT_EQ(top.results_sent, 200u);
  for (const std::size_t leaf : {1, 2}) {
    const auto counters = ranks.world.counters(leaf);
    EXPECT_EQ(counters.contributions, 400u);
    EXPECT_EQ(counters.up_sums, 100u);
    EXPECT_EQ(counters.up_resent, 0u);
    // A quarter of what comes from four workers, and the echoes of all four.
    EXPECT_NEAR(static_cast<double>(counters.up_sent_bytes), static_cast<double>(counters.received_bytes) / 4, 1000.0);
  }
}

TEST_P(TreeBelow, NamesTheRankThatIsMissingBelowAnotherSwitch) {
  EightRanks ranks(10, GetParam());
  ranks.world.stop_worker(6);
  ASSERT_FALSE(ranks.world.run(20 * kSecond));
  for (const std::uint16_t rank : {0, 3, 4, 7}) {
    const auto error = ranks.world.worker(rank).overdue(ranks.world.time(), 5 * kSecond, "leaf:1", "root:1");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->rank, 6) << error->message;
    EXPECT_EQ(error->code, ErrorCode::kTimeout);
  }
}

TEST_P(TreeBelow, NamesTheSwitchAboveThatDoesNotAnswer) {
  EightRanks ranks(10, GetParam());
  ranks.world.stop_switch(0);
  ASSERT_FALSE(ranks.world.run(20 * kSecond));
  for (const std::uint16_t rank : {0, 5}) {
    const auto error = ranks.world.worker(rank).overdue(ranks.world.time(), 5 * kSecond, "leaf:1", "root:1");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kSwitchFailed);
    EXPECT_THAT(error->message, HasSubstr("root:1"));
  }
}

TEST(Tree, NamesTheSwitchThatDisagrees) {
  const Shape shape = two_levels(4, 2);
  TreeWorld world(shape, {});
  std::vector<std::vector<float>> tensors(4, std::vector<float>(10));
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    const std::size_t count = rank < 2 ? 10 : 9;
    world.submit(rank, {tensors[rank].data(), tensors[rank].data(), count, ElementType::kFp32, Format::kFp32, false});
  }
  EXPECT_FALSE(world.run(kSecond));
  ASSERT_EQ(world.mismatches().size(), 1u);
  EXPECT_THAT(world.mismatches()[0], ::testing::AllOf(HasSubstr("ranks 0 to 1"), HasSubstr("ranks 2 to 3")));
}

// A worker may not pass for a switch: its sums would be rounded elsewhere.
TEST(Tree, TakesPartialSumsFromSwitchesOnly) {
  wire::Lease lease;
  lease.world = 2;
  lease.is_tree = true;
  lease.payload_bytes = 64;
  switching::Tree tree;
  tree.contributors = {{0, 1, {}}, {1, 3, {7}}};
  switching::Aggregator aggregator(lease, 0, switching::Payloads::kCopied, tree);
  struct Nothing final : switching::AggregatorOutput {
    void result_to_all(std::uint32_t, std::span<const std::byte>) override {}
    void result_to_some(std::uint32_t, std::span<const std::byte>, std::span<const std::byte>,
                        switching::Receivers) override {}
    void result_to_one(std::uint16_t, std::uint32_t, std::span<const std::byte>) override {}
    void notice(std::uint16_t, std::span<const std::byte>) override {}
    void complete(std::span<const std::byte>) override {}
    void mismatch(std::uint16_t, std::string) override {}
  } outbox;
  const std::vector<std::byte> payload(64);
  for (const std::uint16_t place : {0, 1}) {
    wire::Packet packet{lease.header(wire::Kind::kContribution, place, 0), payload, {}};
    packet.header.format = Format::kFp32;
    packet.header.count = 16;
    if (place == 0) packet.header.flags |= wire::kPartial;
    EXPECT_EQ(aggregator.on_packet(packet, 0, outbox), switching::Verdict::kBadKind);
  }
}

}  // namespace
}  // namespace netfold::tests

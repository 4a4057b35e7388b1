// All-reduces among ranks without a switch: every algorithm, world, format and kind of link.
#include "group/via_peers/peer_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "counter.h"
#include "numbers/codec.h"
#include "numbers/fold.h"
#include "peer_groups.h"
#include "support/random_seed.h"
#include "support/same_bits.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;

const std::vector<const char*> kAlgorithms{"ring",         "direct",   "halving-doubling",   "recursive-doubling",
                                           "rabenseifner", "binomial", "double-binary-tree", "hierarchical"};
// None, fewer than ranks, a prime, and one more than a chunk of the executor.
const std::vector<std::size_t> kCounts{0, 1, 1009, 16'385};

void expect_sums(const std::vector<std::vector<float>>& inputs, const std::vector<std::vector<float>>& results,
                 Format format) {
  const auto world = inputs.size();
  if (inputs[0].empty()) return;
  for (std::size_t rank = 1; rank < world; ++rank) {
    ASSERT_TRUE(tests::are_same_bits(results[0], results[rank]))
        << "rank " << rank << " ends with other bits than rank 0";
  }
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    ASSERT_NEAR(static_cast<double>(results[0][i]), exact_sum(inputs, i), tolerance(format, static_cast<int>(world)))
        << "element " << i;
  }
}

struct Setting {
  const char* name;
  PeerGroupOptions options;
};

class HostGroupOver : public ::testing::TestWithParam<Setting> {};

void expect_every_algorithm_sums(const PeerGroupOptions& how, int world, const std::vector<std::size_t>& counts) {
  Groups groups = open_all(world, how);
  for (const char* const algorithm : kAlgorithms) {
    for (const std::size_t count : counts) {
      for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
        SCOPED_TRACE(::testing::Message()
                     << algorithm << " world " << world << " count " << count << " as " << numbers::name_of(format));
        const auto inputs = gradients(world, count);
        auto tensors = inputs;
        const schedule::Algorithm chosen{.name = algorithm, .group = 3};
        const auto errors = reduce_all(groups, tensors, {.format = format, .algorithm = chosen});
        for (const auto& error : errors) ASSERT_FALSE(error) << error->message;
        ASSERT_NO_FATAL_FAILURE(expect_sums(inputs, tensors, format));
      }
    }
  }
}

// Every world and the exact bits are netfold-vopr's; here are the real links, and what is larger.
TEST_P(HostGroupOver, EveryAlgorithmGivesEveryRankTheSameSum) {
  for (const int world : {2, 3, 5, 8}) {
    ASSERT_NO_FATAL_FAILURE(expect_every_algorithm_sums(GetParam().options, world, kCounts));
  }
}

TEST(PeerGroup, EveryAlgorithmServesLargerWorlds) {
  for (int world = 10; world <= (tests::kSanitized ? 10 : 17); ++world) {
    ASSERT_NO_FATAL_FAILURE(expect_every_algorithm_sums({}, world, {0, 1, static_cast<std::size_t>(world) - 1, 1009}));
  }
}

// A group of one rank rounds to the wire format too: its bits do not depend on the link that it would use.
TEST(PeerGroup, ARankAloneEndsWithWhatTravels) {
  Groups groups = open_all(1);
  for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
    auto tensors = gradients(1, 1009);
    std::vector<std::byte> encoded(numbers::encoded_bytes({format}, 1009));
    std::vector<float> expected(1009);
    numbers::encode({format}, ElementType::kFp32, tensors[0].data(), 1009, encoded.data());
    numbers::decode({format}, ElementType::kFp32, encoded.data(), 1009, expected.data());
    const auto errors = reduce_all(groups, tensors, {.format = format});
    ASSERT_FALSE(errors[0]) << errors[0]->message;
    EXPECT_EQ(tensors[0], expected) << numbers::name_of(format);
  }
}

TEST_P(HostGroupOver, FoldsIntegersExactlyAndAverages) {
  for (const int world : {2, 3, 8}) {
    Groups groups = open_all(world, GetParam().options);
    for (const char* const algorithm : kAlgorithms) {
      std::vector<std::vector<std::int32_t>> tensors;
      for (int rank = 0; rank < world; ++rank) tensors.emplace_back(1237, (1 << 20) * (rank + 1) + 1);
      const CollectiveRequest request{.type = ElementType::kInt32,
                                      .format = Format::kInt32,
                                      .average = true,
                                      .algorithm = {.name = algorithm, .group = 2}};
      for (const auto& error : reduce_all(groups, tensors, request)) ASSERT_FALSE(error) << error->message;
      const int sum = (1 << 20) * (world * (world + 1) / 2) + world;
      for (const auto& tensor : tensors) ASSERT_THAT(tensor, ::testing::Each(sum / world)) << algorithm;
    }
  }
}

TEST_P(HostGroupOver, RunsManyAllReducesAtOnce) {
  constexpr int kWorld = 4;
  Groups groups = open_all(kWorld, GetParam().options);
  std::vector<std::vector<std::vector<float>>> tensors(kWorld);
  std::vector<std::vector<PeerGroup::Ticket>> tickets(kWorld);
  const auto count_of = [](std::size_t t) { return (t * 7919) % 60'000; };
  for (std::size_t t = 0; t < 40; ++t) {
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      auto& tensor = tensors[rank].emplace_back(count_of(t), static_cast<float>(rank + t));
      const auto ticket = groups[rank]->submit(in_place(tensor, kAlgorithms[t % 7]));
      ASSERT_TRUE(ticket) << ticket.error().message;
      tickets[rank].push_back(*ticket);
    }
  }
  std::vector<std::future<void>> waiting;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    waiting.push_back(std::async(std::launch::async, [&, rank] {
      for (std::size_t t = 0; t < tickets[rank].size(); ++t) {
        const auto error = finish(*groups[rank], tickets[rank][t]);
        ASSERT_FALSE(error) << error->message;
        for (const float x : tensors[rank][t]) ASSERT_EQ(x, static_cast<float>(6 + 4 * t)) << "all-reduce " << t;
      }
    }));
  }
  for (auto& each : waiting) each.get();
}

TEST_P(HostGroupOver, AllReducesBetweenTwoPlacesAndSixteenBitTensors) {
  constexpr int kWorld = 3;
  Groups groups = open_all(kWorld, GetParam().options);
  std::vector<float> in(5000, 1.5f);
  std::vector<std::vector<float>> out(kWorld, std::vector<float>(5000, -1));
  std::vector<PeerGroup::Ticket> tickets;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    tickets.push_back(
        *groups[rank]->submit({.in = in.data(), .out = out[rank].data(), .count = 5000, .average = true}));
  }
  std::vector<std::future<std::optional<Error>>> waiting;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    waiting.push_back(std::async(std::launch::async, [&, rank] { return finish(*groups[rank], tickets[rank]); }));
  }
  for (auto& each : waiting) EXPECT_FALSE(each.get());
  EXPECT_THAT(in, ::testing::Each(1.5f));
  for (const auto& each : out) EXPECT_THAT(each, ::testing::Each(1.5f));

  for (const Format format : {Format::kFp32, Format::kBf16, Format::kBfp}) {
    std::vector<std::vector<std::uint16_t>> halves(kWorld, std::vector<std::uint16_t>(777, 0x3fc0));  // 1.5 as bf16
    const CollectiveRequest request{.type = ElementType::kBf16, .format = format};
    for (const auto& error : reduce_all(groups, halves, request)) ASSERT_FALSE(error) << error->message;
    for (const auto& each : halves) EXPECT_THAT(each, ::testing::Each(0x4090)) << numbers::name_of(format);  // 4.5
  }
}

INSTANTIATE_TEST_SUITE_P(Links, HostGroupOver,
                         ::testing::Values(Setting{"Shm", {}}, Setting{"Tcp", {.shm = false}},
                                           Setting{"TcpThree", {.shm = false, .tcp_streams = 3}},
                                           Setting{"Inline", {.inline_progress = true}},
                                           Setting{"InlineTcp", {.shm = false, .inline_progress = true}}),
                         [](const auto& setting) { return setting.param.name; });

// The pairwise order of the specification: the bits of the in-network fold.
class PairwiseFold : public ::testing::TestWithParam<std::tuple<const char*, int, bool, Format>> {};

TEST_P(PairwiseFold, IsWhatRanksEndWith) {
  const auto [algorithm, world, shm, format] = GetParam();
  const numbers::WireFormat wire{format};
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'007}}) {
    Groups groups = open_all(world, {.shm = shm});
    const auto inputs = gradients(world, count);
    auto tensors = inputs;
    for (const auto& error : reduce_all(groups, tensors, {.format = format, .algorithm = {.name = algorithm}})) {
      ASSERT_FALSE(error) << error->message;
    }
    std::vector<std::vector<std::byte>> encoded;
    std::vector<const std::byte*> payloads;
    for (const auto& input : inputs) {
      encoded.emplace_back(numbers::encoded_bytes(wire, count));
      numbers::encode(wire, ElementType::kFp32, input.data(), count, encoded.back().data());
      payloads.push_back(encoded.back().data());
    }
    std::vector<std::byte> sum(encoded[0].size());
    numbers::Folder(count, payloads.size()).fold(wire, payloads, count, sum.data());
    std::vector<float> folded(count);
    numbers::decode(wire, ElementType::kFp32, sum.data(), count, folded.data());
    for (const auto& tensor : tensors) ASSERT_EQ(tensor, folded);
  }
}

INSTANTIATE_TEST_SUITE_P(HalvingDoubling, PairwiseFold,
                         ::testing::Combine(::testing::Values("halving-doubling"), ::testing::Values(2, 4, 8),
                                            ::testing::Values(true), ::testing::Values(Format::kFp32)));
INSTANTIATE_TEST_SUITE_P(Direct, PairwiseFold,
                         ::testing::Combine(::testing::Values("direct"), ::testing::Range(2, 10),
                                            ::testing::Values(true), ::testing::Values(Format::kFp32, Format::kBfp)));
INSTANTIATE_TEST_SUITE_P(DirectOverTcp, PairwiseFold,
                         ::testing::Combine(::testing::Values("direct"), ::testing::Values(2, 3, 5, 8, 17),
                                            ::testing::Values(false),
                                            ::testing::Values(Format::kFp32, Format::kBf16, Format::kBfp)));

// More than a slice, and not a whole number of them.
TEST_P(HostGroupOver, FoldsLargeTensors) {
  for (const char* const algorithm :
       {"ring", "direct", "halving-doubling", "double-binary-tree", "recursive-doubling"}) {
    for (const Format format : {Format::kFp32, Format::kBfp}) {
      Groups groups = open_all(3, GetParam().options);
      const auto inputs = gradients(3, 1'300'003);
      auto tensors = inputs;
      const auto errors = reduce_all(groups, tensors, {.format = format, .algorithm = {.name = algorithm}});
      for (const auto& error : errors) ASSERT_FALSE(error) << error->message;
      expect_sums(inputs, tensors, format);
    }
  }
}

// No thread drives rank 0 after its wait, so its last bytes must be sent by then, however late the reader is. How much
// the kernel takes of it is the kernel's to say: one of these sizes is a little more than that.
TEST(PeerGroup, LeavesNothingUnsentInTheCallersThread) {
  for (std::size_t count = 300'000; count <= 1'800'000; count += 100'000) {
    auto tensors = gradients(3, count);
    Groups groups = open_all(3, {.shm = false, .inline_progress = true});
    std::vector<PeerGroup::Ticket> tickets;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      tickets.push_back(*groups[rank]->submit(in_place(tensors[rank], "binomial")));  // rank 0 sends last
    }
    auto center = std::async(std::launch::async, [&] { return finish(*groups[0], tickets[0]); });
    const double tensor_bytes = static_cast<double>(count * sizeof(float));
    for (int turn = 0; turn < 10'000 && counter(*groups[1], "tcp_sent_bytes") < tensor_bytes; ++turn) {
      ASSERT_FALSE(groups[1]->wait(tickets[1], 0));  // rank 1 hands its tensor over, and then looks away
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_FALSE(finish(*groups[2], tickets[2]));
    center.wait_for(std::chrono::milliseconds(30));
    EXPECT_FALSE(finish(*groups[1], tickets[1])) << count;
    EXPECT_FALSE(center.get());
    EXPECT_EQ(tensors[0], tensors[1]);
  }
}

TEST(PeerGroup, TakesSharedMemoryOnOneMachine) {
  Groups groups = open_all(3);
  auto tensors = gradients(3, 1000);
  for (const auto& error : reduce_all(groups, tensors)) ASSERT_FALSE(error) << error->message;
  for (auto& group : groups) {
    EXPECT_EQ(counter(*group, "shm_peers"), 2);
    EXPECT_EQ(counter(*group, "tcp_peers"), 0);
    EXPECT_GT(counter(*group, "shm_sent_bytes"), 1000 * 4);
  }
}

}  // namespace
}  // namespace netfold::group

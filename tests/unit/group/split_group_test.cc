// A group that divides tensors between a switch and its ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "counter.h"
#include "numbers/codec.h"
#include "split_groups.h"
#include "support/random_seed.h"

namespace netfold::group {
namespace {

using numbers::Format;

const std::vector kWorlds = tests::kSanitized ? std::vector{2, 3} : std::vector{2, 3, 5, 8};

class SplitGroupOf : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(SplitGroupOf, GivesTheBitsOfTheSwitchWhateverTheShares) {
  const auto [world, switches, shm] = GetParam();
  const std::array servers = {start_switch(), start_switch(), start_switch()};
  std::vector<const switching::SwitchServer*> used;
  for (int at = 0; at < switches; ++at) used.push_back(servers[static_cast<std::size_t>(at)].get());
  SplitGroups groups = join_all(used, world, shm);
  Prng prng(static_cast<std::uint64_t>(world));
  for (int i = 0; i < 12; ++i) {
    const std::size_t count = i % 3 == 0 ? 1 + prng.below(5000) : 1'200'000 + prng.below(200'000);
    const auto tensors = gradients(world, count);
    const Format format = std::array{Format::kFp32, Format::kBfp, Format::kFp16, Format::kBf16}[prng.below(4)];
    const bool average = prng.below(2) == 0, in_place = prng.below(2) == 0;
    const auto expected = reduce(groups, tensors, {.name = "in-network"}, format, average, true);
    const auto sums = reduce(groups, tensors, {.name = "split"}, format, average, in_place);
    for (std::size_t rank = 0; rank < sums.size(); ++rank) {
      EXPECT_TRUE(are_same_bits(sums[rank], expected[0])) << "rank " << rank << ", tensor " << i;
    }
  }
  for (const auto& group : groups) EXPECT_GE(counter(*group, "divided_tensors"), 4);
  EXPECT_GT(counter(*groups[0], "switch_bytes_s"), 0);
}

// GPUs encode tensors; each algorithm sums them. The switch's sum of the same tensors in fp32 has the same bits.
TEST_P(SplitGroupOf, SumsEncodedElementsToTheSameBits) {
  const auto [world, switches, shm] = GetParam();
  const auto server = start_switch();
  SplitGroups groups = join_all(*server, world, shm);
  const numbers::WireFormat wire{Format::kBfp, {}};
  for (const std::size_t count : {1UL, 5001UL, 1'200'007UL}) {
    const auto tensors = gradients(world, count);
    const auto expected = reduce(groups, tensors, {.name = "in-network"}, Format::kBfp, false, false);
    for (const char* const name : {"in-network", "split", "direct"}) {
      std::vector<std::vector<std::byte>> encoded;
      std::vector<Ticket> tickets;
      for (std::size_t rank = 0; rank < groups.size(); ++rank) {
        auto& bytes = encoded.emplace_back(numbers::encoded_bytes(wire, count));
        numbers::encode(wire, numbers::ElementType::kFp32, tensors[rank].data(), count, bytes.data());
        CollectiveRequest request{.in = bytes.data(), .out = bytes.data(), .count = count, .format = Format::kBfp};
        request.algorithm.name = name;
        request.is_encoded = true;
        tickets.push_back(*groups[rank]->submit(request));
      }
      for (std::size_t rank = 0; rank < groups.size(); ++rank) {
        const auto error = end_of(*groups[rank], tickets[rank]);
        ASSERT_FALSE(error) << error->message;
        std::vector<float> sum(count);
        numbers::decode(wire, numbers::ElementType::kFp32, encoded[rank].data(), count, sum.data());
        EXPECT_TRUE(are_same_bits(sum, expected[0])) << name << ", rank " << rank << ", " << count << " elements";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, SplitGroupOf,
                         ::testing::Combine(::testing::ValuesIn(kWorlds), ::testing::Values(1, 3), ::testing::Bool()));

class SplitGroupOver : public ::testing::TestWithParam<bool> {};  // shared memory or not

TEST_P(SplitGroupOver, KeepsManyTensorsOfAllKindsInOrder) {
  constexpr int kWorld = 3;
  constexpr std::size_t kTensors = 30;
  const auto server = start_switch();
  SplitGroups groups = join_all(*server, kWorld, GetParam());
  const char* const algorithms[] = {"split", "in-network", "split", "ring", "split"};
  std::vector<std::vector<std::vector<float>>> tensors(kWorld);
  std::vector<std::vector<Ticket>> tickets(kWorld);
  Prng prng(7);
  for (std::size_t t = 0; t < kTensors; ++t) {
    const std::size_t count = 1 + prng.below(t % 2 == 0 ? 600'000 : 3000);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      tensors[rank].emplace_back(count, static_cast<float>(rank + t));
    }
  }
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      auto& tensor = tensors[rank][t];
      tickets[rank].push_back(*groups[rank]->submit(request_for(tensor, tensor, {.name = algorithms[t % 5]})));
    }
  }
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      const auto error = end_of(*groups[rank], tickets[rank][t]);
      ASSERT_FALSE(error) << error->message;
      const auto is_right = [&](float x) { return x == static_cast<float>(3 * t + 3); };
      EXPECT_TRUE(std::ranges::all_of(tensors[rank][t], is_right)) << "tensor " << t;
    }
  }
  for (auto& group : groups) group->close();
}

INSTANTIATE_TEST_SUITE_P(Links, SplitGroupOver, ::testing::Bool());

// Else each switch would sum the elements of different places.
TEST(SplitGroup, RanksThatNameTheSwitchesInDifferentOrdersDoNotMeet) {
  const std::array servers = {start_switch(), start_switch()};
  SplitGroups groups;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<SwitchGroupOptions> at_switches(2);
    for (std::size_t at = 0; at < 2; ++at) {
      at_switches[at].switch_address = link::to_string(servers[rank == 0 ? at : 1 - at]->address());
      at_switches[at].job = "test";
    }
    groups.push_back(*SplitGroup::open({.rank = rank, .world = 2, .timeout_s = 1}, at_switches));
    addresses.push_back(groups.back()->address());
  }
  auto other = std::async(std::launch::async, [&] { return groups[1]->connect(addresses); });
  for (const auto& connected : {groups[0]->connect(addresses), other.get()}) {
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().code, ErrorCode::kTimeout) << connected.error().message;
  }
}

TEST(SplitGroup, ARankThatDiesIsNamedAndNothingIsLost) {
  constexpr int kWorld = 4;
  const auto server = start_switch();
  SplitGroups groups = join_all(*server, kWorld);
  const auto tensors = gradients(kWorld, 1'000'000);
  for (int i = 0; i < 3; ++i) reduce(groups, tensors, {.name = "split"}, Format::kFp32, false, true);
  auto kept = tensors;
  std::vector<Ticket> tickets;
  for (std::size_t rank = 0; rank + 1 < kWorld; ++rank) {
    tickets.push_back(*groups[rank]->submit(request_for(kept[rank], kept[rank], {.name = "split"})));
  }
  groups[3]->close(Error{ErrorCode::kPeerFailed, "rank 3 ran out of patience"});
  for (std::size_t rank = 0; rank + 1 < kWorld; ++rank) {
    const auto error = end_of(*groups[rank], tickets[rank]);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->rank, 3) << error->message;
    EXPECT_TRUE(are_same_bits(kept[rank], tensors[rank])) << "rank " << rank;
  }
}

TEST(SplitGroup, RanksThatDisagreeAreToldSo) {
  const auto server = start_switch();
  SplitGroups groups = join_all(*server, 2, false, 3);
  auto tensors = gradients(2, 500'000);
  tensors[1].resize(400'000);
  std::vector<Ticket> tickets;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    tickets.push_back(*groups[rank]->submit(request_for(tensors[rank], tensors[rank], {.name = "split"})));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(end_of(*groups[rank], tickets[rank]));
}

TEST(SplitGroup, NeedsASwitchAndTwoRanks) {
  EXPECT_EQ(SplitGroup::open({.rank = 0, .world = 2}, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SplitGroup::open({.rank = 0, .world = 1}, {{}}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace netfold::group

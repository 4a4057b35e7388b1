// Ranks that sum both ways at once, over real sockets on loopback: a switch server, ranks as threads of this process.
#include "group/via_both/split_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <future>
#include <thread>

#include "base/prng.h"
#include "peer_groups.h"
#include "switch/switch_server.h"

namespace netfold::group {
namespace {

using numbers::Format;

std::unique_ptr<switching::SwitchServer> start_switch() {
  switching::SwitchServerOptions options;
  options.bind.ip = 0x7f000001;
  auto server = switching::SwitchServer::start(std::move(options));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

using SplitGroups = std::vector<std::unique_ptr<SplitGroup>>;

SplitGroups join_all(const switching::SwitchServer& server, int world, bool shm = false, double timeout_s = 20) {
  SwitchGroupOptions at_switch;
  at_switch.switch_address = link::to_string(server.address());
  at_switch.job = "test";
  SplitGroups groups;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < world; ++rank) {
    auto group = SplitGroup::open({.rank = rank, .world = world, .timeout_s = timeout_s, .shm = shm}, at_switch);
    EXPECT_TRUE(group) << group.error().message;
    addresses.push_back((*group)->address());
    groups.push_back(std::move(*group));
  }
  std::vector<std::future<Result<void>>> connecting;
  for (auto& group : groups) {
    connecting.push_back(std::async(std::launch::async, [&group, addresses] { return group->connect(addresses); }));
  }
  for (auto& each : connecting) {
    const auto connected = each.get();
    EXPECT_TRUE(connected) << connected.error().message;
  }
  return groups;
}

std::optional<Error> end_of(SplitGroup& group, Ticket ticket) {
  const auto completion = group.wait(ticket, 60 * kSecond);
  if (!completion) return Error{ErrorCode::kTimeout, "an all-reduce neither completed nor failed"};
  return completion->error;
}

CollectiveRequest request_for(const std::vector<float>& in, std::vector<float>& out, const char* algorithm,
                              Format format = Format::kFp32, bool average = false) {
  return {.in = in.data(),
          .out = out.data(),
          .count = in.size(),
          .format = format,
          .average = average,
          .algorithm = {.name = algorithm}};
}

bool are_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<std::uint32_t, float>, std::bit_cast<std::uint32_t, float>);
}

// By rank: all-reduces of one tensor, by algorithm.
std::vector<std::vector<float>> reduce(SplitGroups& groups, const std::vector<std::vector<float>>& tensors,
                                       const char* algorithm, Format format, bool average, bool in_place) {
  std::vector<std::vector<float>> results = tensors;
  std::vector<Ticket> tickets;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const auto& in = in_place ? results[rank] : tensors[rank];
    const auto ticket = groups[rank]->submit(request_for(in, results[rank], algorithm, format, average));
    EXPECT_TRUE(ticket) << ticket.error().message;
    tickets.push_back(*ticket);
  }
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const auto error = end_of(*groups[rank], tickets[rank]);
    EXPECT_FALSE(error) << error->message;
  }
  return results;
}

class SplitGroupOf : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(SplitGroupOf, GivesTheBitsOfTheSwitchWhateverTheShare) {
  const auto [world, shm] = GetParam();
  const auto server = start_switch();
  SplitGroups groups = join_all(*server, world, shm);
  Prng prng(static_cast<std::uint64_t>(world));
  for (int i = 0; i < 12; ++i) {
    const std::size_t count = i % 3 == 0 ? 1 + prng.below(5000) : 300'000 + prng.below(200'000);
    const auto tensors = gradients(world, count);
    const Format format = std::array{Format::kFp32, Format::kBfp, Format::kFp16, Format::kBf16}[prng.below(4)];
    const bool average = prng.below(2) == 0, in_place = prng.below(2) == 0;
    const auto expected = reduce(groups, tensors, "in-network", format, average, true);
    const auto sums = reduce(groups, tensors, "split", format, average, in_place);
    for (std::size_t rank = 0; rank < sums.size(); ++rank) {
      EXPECT_TRUE(are_same_bits(sums[rank], expected[0])) << "rank " << rank << ", tensor " << i;
    }
  }
  for (const auto& group : groups) {
    const auto counters = group->counters();
    EXPECT_GE(counters["divided_tensors"].get<int>(), 4);
    EXPECT_GT(counters["share_of_switch"].get<double>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, SplitGroupOf,
                         testing::Combine(testing::Values(2, 3, 5, 8), testing::Values(false, true)));

class SplitGroupOver : public testing::TestWithParam<bool> {};  // shared memory or not

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
    const std::size_t count = 1 + prng.below(t % 2 == 0 ? 400'000 : 3000);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      tensors[rank].emplace_back(count, static_cast<float>(rank + t));
    }
  }
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      auto& tensor = tensors[rank][t];
      tickets[rank].push_back(*groups[rank]->submit(request_for(tensor, tensor, algorithms[t % 5])));
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

INSTANTIATE_TEST_SUITE_P(Links, SplitGroupOver, testing::Bool());

// One part may have ended when the other fails.
TEST(SplitGroup, PutsTensorsBackWhenTheSwitchGoes) {
  constexpr int kWorld = 3;
  auto server = start_switch();
  SplitGroups groups = join_all(*server, kWorld);
  const auto tensors = gradients(kWorld, 4'000'000);
  auto kept = tensors;
  std::vector<Ticket> tickets;
  // Rank 2 does not take part: what the others can do of it they do, but it cannot end.
  for (std::size_t rank = 0; rank < 2; ++rank) {
    tickets.push_back(*groups[rank]->submit(request_for(kept[rank], kept[rank], "split")));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server.reset();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto error = end_of(*groups[rank], tickets[rank]);
    ASSERT_TRUE(error);
    EXPECT_TRUE(are_same_bits(kept[rank], tensors[rank])) << "rank " << rank;
  }
}

TEST(SplitGroup, ARankThatDiesIsNamedAndNothingIsLost) {
  constexpr int kWorld = 4;
  const auto server = start_switch();
  SplitGroups groups = join_all(*server, kWorld);
  const auto tensors = gradients(kWorld, 1'000'000);
  for (int i = 0; i < 3; ++i) reduce(groups, tensors, "split", Format::kFp32, false, true);
  auto kept = tensors;
  std::vector<Ticket> tickets;
  for (std::size_t rank = 0; rank + 1 < kWorld; ++rank) {
    tickets.push_back(*groups[rank]->submit(request_for(kept[rank], kept[rank], "split")));
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
    tickets.push_back(*groups[rank]->submit(request_for(tensors[rank], tensors[rank], "split")));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(end_of(*groups[rank], tickets[rank]));
}

TEST(SplitGroup, NeedsASwitchAndTwoRanks) {
  EXPECT_EQ(SplitGroup::open({.rank = 0, .world = 1}, {}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace netfold::group

// Switches that go while ranks sum through them: nothing ends, and no bit changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <span>
#include <thread>

#include "base/prng.h"
#include "split_groups.h"
#include "support/random_seed.h"
#include "testing/plain_fold.h"

namespace netfold::group {
namespace {

using numbers::Format;
using schedule::Collective;

constexpr std::uint64_t kLossSeeds = tests::kSanitized ? 2 : 8;

// Parts that were at the switch are summed again, also for ranks that hand their tensors over later.
TEST(SplitGroupLosesTheSwitch, AndGoesOn) {
  constexpr int kWorld = 3;
  auto server = start_switch();
  SplitGroups groups = join_all(*server, kWorld);
  const auto tensors = gradients(kWorld, 4'000'000);
  const auto expected = reduce(groups, tensors, {.name = "in-network"}, Format::kFp32, false, false);
  auto sums = tensors;
  std::vector<Ticket> tickets;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    tickets.push_back(*groups[rank]->submit(request_for(sums[rank], sums[rank], {.name = "split"})));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server.reset();
  tickets.push_back(*groups[2]->submit(request_for(sums[2], sums[2], {.name = "split"})));
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    const auto error = end_of(*groups[rank], tickets[rank]);
    ASSERT_FALSE(error) << error->message;
    EXPECT_TRUE(are_same_bits(sums[rank], expected[0])) << "rank " << rank;
    EXPECT_EQ(groups[rank]->take_news().size(), 1U);
  }
  EXPECT_TRUE(
      are_same_bits(reduce(groups, tensors, {.name = "in-network"}, Format::kFp32, false, true)[0], expected[0]));
}

// Nothing of that rank is needed any more, so what the others do meanwhile goes on.
TEST(SplitGroupLosesTheSwitch, AfterARankHasLeft) {
  constexpr int kWorld = 3;
  auto server = start_switch();
  SplitGroups groups = join_all(*server, kWorld);
  reduce(groups, gradients(kWorld, 1'000'000), {.name = "split"}, Format::kFp32, false, true);
  std::vector<std::byte> sent(1000, std::byte{1}), received(1000);
  const auto message = [](Collective collective, std::vector<std::byte>& memory, int peer) {
    return CollectiveRequest{.in = memory.data(),
                             .out = memory.data(),
                             .count = memory.size(),
                             .type = numbers::ElementType::kUint8,
                             .format = Format::kNone,
                             .collective = collective,
                             .peer = peer};
  };
  const auto receive = groups[1]->submit(message(Collective::kReceive, received, 2));
  groups[0]->close();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto send = groups[2]->submit(message(Collective::kSend, sent, 1));
  ASSERT_TRUE(receive && send);
  for (const auto& [rank, ticket] : {std::pair{1U, *receive}, std::pair{2U, *send}}) {
    const auto error = end_of(*groups[rank], ticket);
    EXPECT_FALSE(error) << error->message;
  }
  EXPECT_EQ(received, sent);
}

// Restarted at its address, time and again, the switch gets a share again. The callers see it only in the news.
TEST(SplitGroupLosesTheSwitch, AndTakesItBack) {
  constexpr int kWorld = 3;
  auto server = start_switch();
  const link::Address address = server->address();
  SplitGroups groups = join_all(*server, kWorld);
  const auto tensors = gradients(kWorld, 600'000);
  const auto expected = reduce(groups, tensors, {.name = "in-network"}, Format::kFp32, false, false);
  for (int times = 0; times < 3; ++times) {
    server.reset();
    EXPECT_TRUE(are_same_bits(reduce(groups, tensors, {.name = "split"}, Format::kFp32, false, true)[0], expected[0]));
    server = start_switch(address);
    std::vector<std::vector<ShareReport::News>> news(groups.size());
    const Nanoseconds until = now() + 30 * kSecond;
    // The switch hears of a rank some time before the ranks agree that it is back: only the news say that. Its first
    // share comes with a later tensor.
    const auto have_heard = [](const auto& each) { return each.size() >= 2; };
    const auto is_back = [&] {
      return std::ranges::all_of(news, have_heard) && server->stats().link.received_packets > 0;
    };
    while (!is_back() && now() < until) {
      const auto sums = reduce(groups, tensors, {.name = "split"}, Format::kFp32, false, true);
      for (const auto& each : sums) ASSERT_TRUE(are_same_bits(each, expected[0]));
      for (std::size_t rank = 0; rank < groups.size(); ++rank)
        std::ranges::move(groups[rank]->take_news(), std::back_inserter(news[rank]));
    }
    EXPECT_GT(server->stats().link.received_packets, 0U) << "the switch is back for the ranks";
    for (const auto& each : news) {
      ASSERT_EQ(each.size(), 2U);
      EXPECT_EQ(each[0].switch_name, link::to_string(address));
      EXPECT_NE(each[0].why, "");
      EXPECT_EQ(each[1].why, "");
    }
  }
}

class SplitGroupLoses : public ::testing::TestWithParam<std::uint64_t> {};  // seed

// Large and small tensors, in place or not, one behind the other, while one switch after another goes.
TEST_P(SplitGroupLoses, SwitchesAtAnyMomentAndNoBit) {
  Prng prng(GetParam());
  const int world = 2 + static_cast<int>(prng.below(3));
  std::array servers = {start_switch(), start_switch(), start_switch()};
  const std::size_t switches = 1 + prng.below(servers.size());
  std::vector<const switching::SwitchServer*> used;
  for (std::size_t at = 0; at < switches; ++at) used.push_back(servers[at].get());
  SplitGroups groups = join_all(used, world, prng.below(3) == 0);
  constexpr std::size_t kTensors = 16;
  std::vector<std::vector<std::vector<float>>> in, out;  // by tensor, by rank
  std::vector<std::vector<Ticket>> tickets(kTensors);
  std::vector<bool> average;
  std::vector<Format> formats;
  std::thread breaker([&, wait = prng.below(120), comes_back = prng.below(2) == 0] {
    for (std::size_t at = 0; at < switches; ++at) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait));
      const link::Address address = servers[at]->address();
      servers[at].reset();
      if (comes_back) servers[at] = start_switch(address);
    }
  });
  for (std::size_t t = 0; t < kTensors; ++t) {
    const std::size_t count = prng.below(3) == 0 ? 300'000 + prng.below(900'000) : 1 + prng.below(20'000);
    in.push_back(gradients(world, count));
    out.push_back(in.back());
    formats.push_back(std::array{Format::kFp32, Format::kBfp, Format::kFp16, Format::kBf16}[prng.below(4)]);
    average.push_back(prng.below(2) == 0);
    const char* const algorithm = prng.below(5) == 0 ? "in-network" : "split";
    const bool in_place = prng.below(2) == 0;
    for (std::size_t rank = 0; rank < groups.size(); ++rank) {
      const auto& from = in_place ? out[t][rank] : in[t][rank];
      const auto request = request_for(from, out[t][rank], {.name = algorithm}, formats[t], average[t]);
      tickets[t].push_back(*groups[rank]->submit(request));
    }
    if (t < 4) continue;  // some are on their way, always
    for (std::size_t rank = 0; rank < groups.size(); ++rank) {
      const auto error = end_of(*groups[rank], tickets[t - 4][rank]);
      EXPECT_FALSE(error) << error->message;
    }
  }
  for (std::size_t t = 0; t < kTensors; ++t) {
    std::vector<std::vector<std::byte>> inputs;
    for (const auto& each : in[t]) {
      const auto bytes = std::as_bytes(std::span(each));
      inputs.emplace_back(bytes.begin(), bytes.end());
    }
    const auto expected =
        testing::plain_all_reduce(inputs, numbers::ElementType::kFp32, {formats[t]}, in[t][0].size(), average[t]);
    for (std::size_t rank = 0; rank < groups.size(); ++rank) {
      if (t + 4 >= kTensors) {
        const auto error = end_of(*groups[rank], tickets[t][rank]);
        EXPECT_FALSE(error) << error->message;
      }
      EXPECT_TRUE(are_same_bits(out[t][rank], expected))
          << "rank " << rank << ", tensor " << t << ", seed " << GetParam();
    }
  }
  breaker.join();
}

INSTANTIATE_TEST_SUITE_P(Seeds, SplitGroupLoses, ::testing::Range(std::uint64_t{0}, kLossSeeds));

}  // namespace
}  // namespace netfold::group

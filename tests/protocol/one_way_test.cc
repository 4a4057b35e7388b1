// Reduce-scatters and all-gathers by `split`: which way they take, and what a lost switch does to them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "base/prng.h"
#include "protocol/both_world.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

using numbers::Format;
using schedule::Collective;

constexpr std::uint16_t kOneWayWorld = 8;
constexpr std::size_t kPart = 33'001;  // elements of a rank: together more than a mebibyte
constexpr double kOneWayStreamBytesS = 12.5e6;
constexpr Nanoseconds kOneWayLimit = 60 * kSecond;

group::CollectiveRequest request_of(Collective collective, Format format = Format::kFp32) {
  group::CollectiveRequest request;
  request.collective = collective;
  request.count = format == Format::kBfp ? 4 * kPart : kPart;
  request.format = format;
  return request;
}

class OneWay : public ::testing::TestWithParam<std::size_t> {  // switches
 protected:
  OneWay() : seed_(random_seed()), trace_(__FILE__, __LINE__, fmt::format("NETFOLD_SEED={}", seed_)) {}

  void run(std::initializer_list<Collective> together, Format format = Format::kFp32) {
    for (const Collective each : together) {
      world_.submit(request_of(each, each == Collective::kReduceScatter ? format : Format::kFp32));
    }
    ASSERT_TRUE(world_.run_until_done(kOneWayLimit))
        << (world_.failure() ? world_.failure()->message : "it takes too long");
    ASSERT_EQ(world_.wrong_results(), 0);
  }
  void run_both(Format format = Format::kFp32) { run({Collective::kAllGather, Collective::kReduceScatter}, format); }

  // How many went through the switch so far: all ranks agree.
  std::uint64_t in_switch() {
    const auto counts = world_.counters("one_way_in_switch");
    EXPECT_EQ(std::ranges::count(counts, counts[0]), kOneWayWorld);
    return counts[0];
  }
  // Until both go through the switch.
  void run_until_in_switch() {
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t before = in_switch();
      run_both();
      if (HasFatalFailure() || in_switch() == before + 2) return;
    }
    FAIL() << "the switch is not taken";
  }
  std::vector<std::uint64_t> folded_chunks() const {  // by switch
    std::vector<std::uint64_t> chunks;
    for (std::size_t at = 0; at < world_.switches(); ++at) chunks.push_back(world_.folded_chunks(at));
    return chunks;
  }

  std::uint64_t seed_;
  ::testing::ScopedTrace trace_;
  BothWorld world_{kOneWayWorld, kOneWayStreamBytesS, seed_, {}, GetParam()};
};

TEST_P(OneWay, TakesTheSwitchWhereBothRunAndLeavesItWhereOneIsAlone) {
  for (int i = 0; i < 6; ++i) {
    run({Collective::kReduceScatter});
    run({Collective::kAllGather});
  }
  EXPECT_EQ(in_switch(), 0U);
  run_until_in_switch();
  for (int i = 0; i < 24; ++i) run({Collective::kReduceScatter});
  const std::uint64_t before = in_switch();
  run({Collective::kReduceScatter});
  EXPECT_EQ(in_switch(), before) << "by itself it is faster among the ranks";
}

TEST_P(OneWay, TheWayChangesNoBit) {
  constexpr std::array kFormats = {Format::kBfp, Format::kFp32, Format::kFp16, Format::kBf16};
  for (const Format format : std::span(kFormats).first(kSanitized ? 1 : kFormats.size())) {
    SCOPED_TRACE(numbers::name_of(format));
    for (int i = 0; i < 24; ++i) run({Collective::kReduceScatter});  // until the switch is left
    const std::uint64_t before = in_switch();
    run({Collective::kReduceScatter}, format);
    EXPECT_EQ(in_switch(), before);
    run_until_in_switch();
    const std::uint64_t later = in_switch();
    run_both(format);
    EXPECT_GT(in_switch(), later);
  }
}

// All-reduces are divided beside them: one word says both.
TEST_P(OneWay, RunBesideAllReduces) {
  Prng prng(seed_);
  for (int i = 0; i < (kSanitized ? 20 : 60); ++i) {
    run({prng.below(4) == 0 ? Collective::kAllReduce : Collective::kAllGather, Collective::kReduceScatter});
  }
  EXPECT_GT(in_switch(), 0U);
}

// Each switch has about the same part of it: it takes about as much as the others.
TEST_P(OneWay, IsDividedBetweenTheSwitches) {
  run_until_in_switch();
  for (int i = 0; i < 8; ++i) run_both();
  const auto before = folded_chunks();
  const std::uint64_t count = in_switch();
  for (int i = 0; i < 8; ++i) run_both();
  ASSERT_EQ(in_switch(), count + 16);
  auto chunks = folded_chunks();
  std::ranges::transform(chunks, before, chunks.begin(), std::minus());
  EXPECT_GT(4 * std::ranges::min(chunks), std::ranges::max(chunks));
}

INSTANTIATE_TEST_SUITE_P(Switches, OneWay, ::testing::Values(1, 3));

class OneWayLoses : public OneWay {};

// The switch dies while both are on their way through it: nothing is lost, and no bit changes. It comes back, and both
// take it again.
TEST_P(OneWayLoses, TheSwitchAndNothingElse) {
  Prng prng(seed_);
  run_until_in_switch();
  for (std::uint64_t times = 0; times < rounds(12) && !HasFatalFailure(); ++times) {
    for (int i = 0; i < 3; ++i) {
      world_.submit(request_of(Collective::kAllGather));
      world_.submit(request_of(Collective::kReduceScatter));
    }
    const std::size_t lost = prng.below(world_.switches());
    ASSERT_TRUE(world_.run_for(static_cast<Nanoseconds>(prng.below(20 * kMillisecond))));
    world_.kill_switch(lost);
    run_both();
    EXPECT_EQ(world_.counters("lost_switches"), std::vector<std::uint64_t>(kOneWayWorld, 1));
    world_.start_switch(lost);
    ASSERT_TRUE(world_.run_for(5 * kSecond));
    run_until_in_switch();
  }
}

INSTANTIATE_TEST_SUITE_P(Switches, OneWayLoses, ::testing::Values(1, 3));

}  // namespace
}  // namespace netfold::tests

// Collectives over RoCE through a switch, by one-way messages, beside all-reduces and however the network misbehaves:
// each rank ends with what the collective's definition says, and a link carries no gradients that are of no use there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "protocol/collective_steps.h"
#include "protocol/roce_world.h"
#include "protocol/tensors.h"
#include "protocol/world.h"
#include "support/random_seed.h"
#include "support/same_bits.h"

namespace netfold::tests {
namespace {

using numbers::ElementType;
using numbers::Format;
using schedule::Collective;
using ::testing::HasSubstr;
using wire::roce::Version;

void submit_all(RoceWorld& world, std::uint16_t ranks, std::vector<Step>& steps) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    for (Step& step : steps) {
      step.submit(rank, [&](std::uint16_t of, const group::CollectiveRequest& request) {
        ASSERT_TRUE(world.session(of).prepare(request));
        world.submit(of, request);
      });
    }
  }
}

// Returns how many packets were sent again.
std::uint64_t expect_all_right(const RoceWorldOptions& options, std::size_t count_max) {
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << options.seed << " world " << options.world << " version "
                                    << static_cast<int>(options.version));
  RoceWorld world(options);
  Prng prng(options.seed);
  auto steps = random_steps(options.world, count_max, prng, plain);
  submit_all(world, options.world, steps);
  EXPECT_TRUE(world.run(kDay)) << "not done within a day of virtual time";
  std::uint64_t resent = 0;
  for (std::uint16_t rank = 0; rank < options.world; ++rank) {
    for (const Step& step : steps) step.expect_right(rank);
    resent += world.endpoint(rank).sender().stats().resent_packets;
  }
  EXPECT_EQ(world.handler().held_frames(), 0u);
  EXPECT_EQ(world.buffers_in_use(), 0u);
  return resent;
}

TEST(RoceOneWay, AreRightAndEachFrameIsSentOnceOnACleanNetwork) {
  for (const std::uint16_t world : {2, 3, 4, 8, 16}) {
    const Version version = world % 3 == 0 ? Version::kV1 : Version::kV2;
    const RoceWorldOptions options{.world = world, .version = version, .one_way = true, .seed = random_seed() + world};
    EXPECT_EQ(expect_all_right(options, 40000), 0u);
  }
}

TEST(RoceOneWay, AreRightWhateverTheNetworkDoes) {
  for (const std::uint64_t seed : random_seeds(60)) {
    Prng prng(seed);
    RoceWorldOptions options{.one_way = true, .seed = seed};
    options.world = static_cast<std::uint16_t>(2 + prng.below(7));
    draw_network(prng, options);
    expect_all_right(options, prng.chance(0.2) ? 40000 : 2000);
    if (::testing::Test::HasFailure()) return;
  }
}

// One reduce-scatter on all ranks, in a format; returns every rank's part.
template <class AnyWorld>
std::vector<Tensor> scattered(AnyWorld& world, const std::vector<Tensor>& in, Format format, bool average) {
  const std::size_t count = in[0].size() / in.size();
  std::vector<Tensor> out(in.size(), Tensor(count));
  for (std::uint16_t rank = 0; rank < in.size(); ++rank) {
    group::CollectiveRequest request{in[rank].data(), out[rank].data(), count, ElementType::kFp32, format, average};
    request.collective = Collective::kReduceScatter;
    world.submit(rank, request);
  }
  EXPECT_TRUE(world.run(kDay));
  return out;
}

TEST(RoceOneWay, AReduceScatterHasTheBitsOfNetfoldsOwnPackets) {
  constexpr std::uint16_t kWorld = 5;
  Prng prng(random_seed());
  const auto in = random_tensors(kWorld, kWorld * 30001, prng);
  for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
    for (const bool average : {false, true}) {
      RoceWorld over_roce(
          {.world = kWorld, .version = Version::kV2, .bfp = {16, 7}, .one_way = true, .faults = {.loss = 0.01}});
      World over_udp({.world = kWorld, .payload_bytes = 1400, .bfp = {16, 7}});
      const auto a = scattered(over_roce, in, format, average), b = scattered(over_udp, in, format, average);
      for (std::size_t rank = 0; rank < kWorld; ++rank) EXPECT_TRUE(are_same_bits(a[rank], b[rank]));
    }
  }
}

// Signalling NaNs, zeros with a sign and lengths that are not a multiple of 4 arrive as they were.
TEST(RoceOneWay, CopiesAreOfBitsAndNotOfNumbers) {
  constexpr std::uint16_t kWorld = 3;
  for (const std::size_t count : {1u, 3u, 1003u, 1005u, 140001u}) {
    std::vector<std::vector<std::uint8_t>> in(kWorld, std::vector<std::uint8_t>(count)), out(kWorld);
    const std::uint32_t nan = 0x7fa00001, minus_zero = 0x80000000;
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      for (std::size_t i = 0; i < count; ++i) {
        in[rank][i] = static_cast<std::uint8_t>((i / 4 % 2 == 0 ? nan : minus_zero) >> 8 * (i % 4)) ^
                      static_cast<std::uint8_t>(i < 4 ? rank << 1 : 0);
      }
      out[rank].resize(kWorld * count);
    }
    RoceWorld world({.world = kWorld, .one_way = true, .faults = {.loss = 0.02}, .seed = count});
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      group::CollectiveRequest request{in[rank].data(), out[rank].data(), count, ElementType::kUint8, Format::kNone};
      request.collective = Collective::kAllGather;
      ASSERT_TRUE(world.session(rank).prepare(request));
      world.submit(rank, request);
    }
    ASSERT_TRUE(world.run(kDay));
    std::vector<std::uint8_t> all;
    for (const auto& each : in) all.insert(all.end(), each.begin(), each.end());
    for (const auto& each : out) EXPECT_EQ(each, all) << count;
  }
}

struct LinkBytes {
  std::uint64_t up, down;
};

// Of every rank's link while one collective runs, whose parts have `count` elements.
std::vector<LinkBytes> link_bytes(Collective collective, std::uint16_t ranks, std::size_t count) {
  RoceWorld world({.world = ranks, .version = Version::kV2, .one_way = true});
  Prng prng(1);
  std::vector<Step> steps;
  steps.emplace_back(collective, ranks, count, prng, plain);
  steps[0].root = 0;
  submit_all(world, ranks, steps);
  EXPECT_TRUE(world.run(kDay));
  std::vector<LinkBytes> bytes;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    const link::LinkStats& stats = world.channel(rank).link().stats();
    bytes.push_back({stats.sent_bytes, stats.received_bytes});
  }
  return bytes;
}

// A frame with 1024 bytes of gradients has 1090 bytes or so, a short one 70 or so.
TEST(RoceOneWay, GradientsGoOneWay) {
  constexpr std::uint16_t kWorld = 8;
  constexpr std::size_t kPartElements = 65536, kPartBytes = 4 * kPartElements;
  constexpr double kFull = 1.10, kShort = 0.08;
  for (const auto& [up, down] : link_bytes(Collective::kReduceScatter, kWorld, kPartElements)) {
    EXPECT_GT(up, kWorld * kPartBytes);
    EXPECT_LT(static_cast<double>(up), kFull * kWorld * kPartBytes);
    EXPECT_GT(down, kPartBytes);
    EXPECT_LT(static_cast<double>(down), (kFull + kShort * (kWorld - 1)) * kPartBytes);
  }
  for (const auto& [up, down] : link_bytes(Collective::kAllGather, kWorld, kPartElements)) {
    EXPECT_GT(up, kPartBytes);
    EXPECT_LT(static_cast<double>(up), (kFull + kShort * (kWorld - 1)) * kPartBytes);
    EXPECT_GT(down, (kWorld - 1) * kPartBytes);
    EXPECT_LT(static_cast<double>(down), (kFull * (kWorld - 1) + kShort) * kPartBytes);
  }
  const auto broadcast = link_bytes(Collective::kBroadcast, kWorld, kPartElements);
  EXPECT_GT(broadcast[0].up, kPartBytes);
  EXPECT_LT(static_cast<double>(broadcast[0].down), 2 * kShort * kPartBytes);
  for (std::uint16_t rank = 1; rank < kWorld; ++rank) {
    EXPECT_LT(static_cast<double>(broadcast[rank].up), 2 * kShort * kPartBytes);
    EXPECT_GT(broadcast[rank].down, kPartBytes);
  }
}

TEST(RoceOneWay, AnUnfinishedOneLeavesWhatWasHandedOver) {
  constexpr std::uint16_t kWorld = 3;
  for (const std::uint64_t seed : random_seeds(12)) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    Prng prng(seed);
    RoceWorld world({.world = kWorld, .one_way = true, .timeout = kSecond, .seed = seed});
    auto steps = random_steps(kWorld, 200000, prng, plain);
    const std::vector<Step> before = steps;
    submit_all(world, kWorld, steps);
    for (std::uint64_t left = prng.below(20); left > 0; --left) world.run(kMicrosecond);
    world.stop_worker(2);
    ASSERT_FALSE(world.run(10 * kSecond));
    const auto error = world.error(0);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->rank, 2) << error->message;
    const std::size_t unfinished = world.session(0).abort(*error, world.time()).size();
    ASSERT_GT(unfinished, 0u);
    for (std::size_t at = steps.size() - unfinished; at < steps.size(); ++at) {
      const Step &now = steps[at], &then = before[at];
      if (now.collective == Collective::kBroadcast && now.root != 0) continue;
      EXPECT_EQ(now.in[0], then.in[0]) << schedule::name_of(now.collective);
      if (!now.in[0].empty() || now.count == 0) continue;
      EXPECT_EQ(part_of(now.out[0], 0, now.count), part_of(then.out[0], 0, now.count));
    }
  }
}

group::CollectiveRequest request_for(std::vector<float>& all, Collective collective, int root = 0) {
  group::CollectiveRequest request = in_place(all);
  request.collective = collective;
  request.root = root;
  request.count /= collective == Collective::kBroadcast || collective == Collective::kAllReduce ? 1 : 2;
  return request;
}

TEST(RoceOneWay, WorkersThatDisagreeAreToldBoth) {
  struct Case {
    Collective first, second;
    int root = 0;
  };
  for (const Case& test :
       {Case{Collective::kReduceScatter, Collective::kAllGather},
        Case{Collective::kReduceScatter, Collective::kAllReduce},
        Case{Collective::kBroadcast, Collective::kBroadcast, 1}, Case{Collective::kBroadcast, Collective::kAllReduce},
        Case{Collective::kBarrier, Collective::kBroadcast}}) {
    RoceWorld world({.world = 2, .one_way = true, .seed = 5});
    std::vector<float> a(5000, 1.0f), b(5000, 2.0f);
    world.submit(0, request_for(a, test.first));
    world.submit(1, request_for(b, test.second, test.root));
    EXPECT_FALSE(world.run(kSecond));
    const auto& error = world.error(1) ? world.error(1) : world.error(0);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::kMismatch);
    EXPECT_THAT(error->message, HasSubstr("rank 1"));
    EXPECT_THAT(error->message, HasSubstr("rank 0"));
  }
}

TEST(RoceOneWay, WithoutThemASessionRefusesAllButAllReduces) {
  RoceWorld world({.world = 2});
  std::vector<float> tensor(10);
  EXPECT_TRUE(world.session(0).prepare(request_for(tensor, Collective::kAllReduce)));
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast, Collective::kBarrier}) {
    EXPECT_FALSE(world.session(0).prepare(request_for(tensor, collective)));
  }
}

// An older switch drops them, and says nothing. Here no frame reaches the switch.
TEST(RoceOneWay, WhereTheSwitchIsSilentTheErrorSaysWhatToLeaveOut) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kAllReduce}) {
    RoceWorld world({.world = 2, .one_way = true, .timeout = kSecond, .faults = {.loss = 1}});
    std::vector<float> a(5000, 1.0f), b(5000, 2.0f);
    world.submit(0, request_for(a, collective));
    world.submit(1, request_for(b, collective));
    EXPECT_FALSE(world.run(10 * kSecond));
    ASSERT_TRUE(world.error(0).has_value());
    const auto leaves_out = HasSubstr("leave out one-way at all ranks");
    EXPECT_EQ(::testing::Matches(leaves_out)(world.error(0)->message), collective == Collective::kBroadcast);
    EXPECT_EQ(b, std::vector<float>(5000, 2.0f));
  }
}

}  // namespace
}  // namespace netfold::tests

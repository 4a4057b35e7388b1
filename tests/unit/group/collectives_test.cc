// Reduce-scatter, all-gather, broadcast and barrier among ranks without a switch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "numbers/codec.h"
#include "peer_groups.h"
#include "support/random_seed.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;
using schedule::Collective;

// Of each rank's part: none, one, a prime, around a chunk of the executor, and several slices.
const std::vector<std::size_t> kParts{0, 1, 1009, 16'383, 16'385};

std::span<const float> part_of(const std::vector<float>& whole, std::size_t rank, std::size_t part) {
  return std::span(whole).subspan(rank * part, part);
}

std::vector<float> rounded(const std::vector<float>& values, numbers::WireFormat wire) {
  std::vector<std::byte> encoded(numbers::encoded_bytes(wire, values.size()));
  std::vector<float> decoded(values.size());
  numbers::encode(wire, ElementType::kFp32, values.data(), values.size(), encoded.data());
  numbers::decode(wire, ElementType::kFp32, encoded.data(), values.size(), decoded.data());
  return decoded;
}

CollectiveRequest as(Collective collective, CollectiveRequest request, const char* algorithm = "ring", int root = 0) {
  request.collective = collective;
  request.algorithm.name = algorithm;
  request.root = root;
  return request;
}

void expect_scattered(Groups& groups, std::size_t part, Format format, bool average = false) {
  const std::size_t world = groups.size();
  const Tensors inputs = gradients(static_cast<int>(world), world * part);
  Tensors outputs(world, std::vector<float>(part, -7));
  const auto before = inputs;
  for (const auto& error : run_all(groups, [&](std::size_t rank) {
         return as(Collective::kReduceScatter,
                   {inputs[rank].data(), outputs[rank].data(), part, ElementType::kFp32, format, average});
       })) {
    ASSERT_FALSE(error) << error->message;
  }
  const double divisor = average ? static_cast<double>(world) : 1;
  for (std::size_t rank = 0; rank < world; ++rank) {
    for (std::size_t i = 0; i < part; ++i) {
      ASSERT_NEAR(static_cast<double>(outputs[rank][i]), exact_sum(inputs, rank * part + i) / divisor,
                  tolerance(format, static_cast<int>(world)))
          << "element " << i << " of rank " << rank;
    }
  }
  ASSERT_EQ(inputs, before) << "the input was written to";
}

void expect_gathered(Groups& groups, std::size_t part, Format format, bool in_place) {
  const std::size_t world = groups.size();
  const Tensors inputs = gradients(static_cast<int>(world), part);
  Tensors outputs(world, std::vector<float>(world * part, -7));
  for (const auto& error : run_all(groups, [&](std::size_t rank) {
         float* const own = outputs[rank].data() + rank * part;
         if (in_place && part > 0) std::memcpy(own, inputs[rank].data(), part * sizeof(float));
         return as(Collective::kAllGather,
                   {in_place ? own : inputs[rank].data(), outputs[rank].data(), part, ElementType::kFp32, format});
       })) {
    ASSERT_FALSE(error) << error->message;
  }
  for (std::size_t rank = 0; rank < world; ++rank) {
    ASSERT_EQ(outputs[rank], outputs[0]) << "rank " << rank << " ends with other bits than rank 0";
    ASSERT_THAT(part_of(outputs[0], rank, part), ::testing::ElementsAreArray(rounded(inputs[rank], {format})));
  }
}

void expect_broadcast(Groups& groups, std::size_t count, Format format, const char* algorithm, int root) {
  const Tensors inputs = gradients(static_cast<int>(groups.size()), count);
  Tensors tensors = inputs;
  for (const auto& error : run_all(groups, [&](std::size_t rank) {
         return as(Collective::kBroadcast,
                   {tensors[rank].data(), tensors[rank].data(), count, ElementType::kFp32, format}, algorithm, root);
       })) {
    ASSERT_FALSE(error) << error->message;
  }
  const auto expected = rounded(inputs[static_cast<std::size_t>(root)], {format});
  for (const auto& tensor : tensors) ASSERT_EQ(tensor, expected);
}

class CollectivesOver : public ::testing::TestWithParam<Links> {};

TEST_P(CollectivesOver, ScatterGatherAndBroadcastInEveryWorldAndFormat) {
  for (const int world : {1, 2, 3, 5, 17}) {  // netfold-vopr runs all in between
    // TCP is slow where many threads share few cores, and so are sanitizers.
    if (world > 5 && (tests::kSanitized || !GetParam().options.shm)) continue;
    Groups groups = open_all(world, GetParam().options);
    for (const std::size_t part : kParts) {
      if (world > 5 && part > 1009) continue;
      for (const Format format : kFormats) {
        SCOPED_TRACE(::testing::Message()
                     << "world " << world << " part " << part << " as " << numbers::name_of(format));
        ASSERT_NO_FATAL_FAILURE(expect_scattered(groups, part, format));
        ASSERT_NO_FATAL_FAILURE(expect_gathered(groups, part, format, part % 2 == 0));
        for (const char* const algorithm : {"binomial", "ring"}) {
          ASSERT_NO_FATAL_FAILURE(expect_broadcast(groups, part, format, algorithm, world / 2));
        }
      }
    }
  }
}

TEST_P(CollectivesOver, LargeTensorsRunInSlices) {
  Groups groups = open_all(3, GetParam().options);
  for (const Format format : {Format::kFp32, Format::kBfp}) {
    ASSERT_NO_FATAL_FAILURE(expect_scattered(groups, 500'003, format, true));
    ASSERT_NO_FATAL_FAILURE(expect_gathered(groups, 500'003, format, false));
    ASSERT_NO_FATAL_FAILURE(expect_broadcast(groups, 1'300'003, format, "ring", 1));
  }
}

TEST_P(CollectivesOver, AScatterAndAGatherHaveTheBitsOfTheAllReduce) {
  constexpr std::size_t kWorld = 4, kPart = 4096;
  Groups groups = open_all(kWorld, GetParam().options);
  for (const Format format : kFormats) {
    Tensors reduced = gradients(kWorld, kWorld * kPart), inputs = reduced, gathered = reduced;
    Tensors parts(kWorld, std::vector<float>(kPart));
    reduce_all(groups, reduced, {.format = format});
    run_all(groups, [&](std::size_t rank) {
      return as(Collective::kReduceScatter,
                {inputs[rank].data(), parts[rank].data(), kPart, ElementType::kFp32, format});
    });
    run_all(groups, [&](std::size_t rank) {
      return as(Collective::kAllGather, {parts[rank].data(), gathered[rank].data(), kPart, ElementType::kFp32, format});
    });
    EXPECT_EQ(gathered, reduced) << numbers::name_of(format);
  }
}

TEST_P(CollectivesOver, IntegersAndSixteenBitTensors) {
  constexpr std::size_t kWorld = 3, kPart = 777;
  Groups groups = open_all(kWorld, GetParam().options);
  std::vector<std::vector<std::uint16_t>> halves(kWorld, std::vector<std::uint16_t>(kWorld * kPart, 0x3fc0));  // 1.5
  std::vector<std::vector<std::uint16_t>> sums(kWorld, std::vector<std::uint16_t>(kPart));
  for (const auto& error : run_all(groups, [&](std::size_t rank) {
         return as(Collective::kReduceScatter,
                   {halves[rank].data(), sums[rank].data(), kPart, ElementType::kBf16, Format::kBf16});
       })) {
    ASSERT_FALSE(error) << error->message;
  }
  for (const auto& each : sums) EXPECT_THAT(each, ::testing::Each(0x4090));  // 4.5
  std::vector<std::vector<std::uint16_t>> all(kWorld, std::vector<std::uint16_t>(kWorld * kPart));
  run_all(groups, [&](std::size_t rank) {
    return as(Collective::kAllGather, {sums[rank].data(), all[rank].data(), kPart, ElementType::kBf16, Format::kBf16});
  });
  for (const auto& each : all) EXPECT_THAT(each, ::testing::Each(0x4090));

  std::vector<std::vector<std::int32_t>> words(kWorld, std::vector<std::int32_t>(kPart));
  for (std::size_t i = 0; i < kPart; ++i) words[2][i] = static_cast<std::int32_t>(0x7fc00001u * i);  // NaNs among them
  run_all(groups, [&](std::size_t rank) {
    return as(Collective::kBroadcast,
              {words[rank].data(), words[rank].data(), kPart, ElementType::kInt32, Format::kInt32}, "ring", 2);
  });
  EXPECT_EQ(words[0], words[2]);
  EXPECT_EQ(words[1], words[2]);
}

TEST_P(CollectivesOver, NobodyPassesABarrierBeforeAllHaveCome) {
  for (const int world : {1, 2, 5, 8}) {
    Groups groups = open_all(world, GetParam().options);
    for (int round = 0; round < 5; ++round) {
      std::atomic<int> come = 0;
      std::vector<std::future<void>> ranks;
      for (int rank = 0; rank < world; ++rank) {
        ranks.push_back(std::async(std::launch::async, [&, rank] {
          std::this_thread::sleep_for(std::chrono::milliseconds((rank * 7 + round) % 5));
          ++come;
          PeerGroup& group = *groups[static_cast<std::size_t>(rank)];
          const auto ticket = group.submit(as(Collective::kBarrier, {}, "dissemination"));
          ASSERT_TRUE(ticket) << ticket.error().message;
          const auto error = finish(group, *ticket);
          ASSERT_FALSE(error) << error->message;
          EXPECT_EQ(come, world);
        }));
      }
      for (auto& each : ranks) each.get();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CollectivesOver,
                         ::testing::Values(Links{"Shm", {}}, Links{"Tcp", {.shm = false}},
                                           Links{"Inline", {.inline_progress = true}}),
                         [](const auto& links) { return links.param.name; });

TEST(Collectives, WhatMakesNoSenseIsRefused) {
  Groups groups = open_all(2);
  std::vector<float> tensor(8);
  const CollectiveRequest request{.in = tensor.data(), .out = tensor.data(), .count = 4};
  const auto refusal = [&](const CollectiveRequest& asked) {
    const auto ticket = groups[0]->submit(asked);
    return ticket ? std::string() : ticket.error().message;
  };
  EXPECT_THAT(refusal(as(Collective::kReduceScatter, request, "rabenseifner")), ::testing::HasSubstr("ring"));
  EXPECT_THAT(refusal(as(Collective::kBroadcast, request, "rabenseifner")), ::testing::HasSubstr("binomial"));
  EXPECT_THAT(refusal(as(Collective::kBroadcast, request, "ring", 2)), ::testing::HasSubstr("root 2"));
  CollectiveRequest averaged = request;
  averaged.average = true;
  EXPECT_THAT(refusal(as(Collective::kAllGather, averaged)), ::testing::HasSubstr("average"));
}

}  // namespace
}  // namespace netfold::group

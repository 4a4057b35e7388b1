// All-reduces among ranks without a switch: every algorithm, world, format and kind of link.
#include "engine/host_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "base/prng.h"
#include "host_groups.h"
#include "numbers/fold.h"

namespace netfold::engine {
namespace {

using numbers::ElementType;
using numbers::Format;

const std::vector<const char*> kAlgorithms{
    "ring", "halving-doubling",   "recursive-doubling", "rabenseifner", "binomial",
    "star", "double-binary-tree", "hierarchical"};
const std::vector<std::size_t> kCounts{0, 1, 5, 63, 1000, 70'001};

std::vector<std::vector<float>> gradients(int world, std::size_t count) {
  std::vector<std::vector<float>> tensors;
  for (int rank = 0; rank < world; ++rank) {
    Prng prng(static_cast<std::uint64_t>(rank) * 1000 + count);
    std::vector<float> tensor(count);
    for (float& x : tensor) x = static_cast<float>(prng.unit() * 2 - 1);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

double tolerance(Format format, int world) {
  const double step = format == Format::kFp32   ? 1e-6
                      : format == Format::kFp16 ? 1e-3
                      : format == Format::kBf16 ? 8e-3
                                                : 1.6e-2;
  return step * world * (1 + std::log2(world)) + step;
}

void expect_sums(const std::vector<std::vector<float>>& inputs, const std::vector<std::vector<float>>& results,
                 Format format) {
  const auto world = inputs.size();
  if (inputs[0].empty()) return;
  for (std::size_t rank = 1; rank < world; ++rank) {
    ASSERT_EQ(std::memcmp(results[0].data(), results[rank].data(), results[0].size() * sizeof(float)), 0)
        << "rank " << rank << " ends with other bits than rank 0";
  }
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    double exact = 0;
    for (const auto& input : inputs) exact += static_cast<double>(input[i]);
    ASSERT_NEAR(static_cast<double>(results[0][i]), exact, tolerance(format, static_cast<int>(world)))
        << "element " << i;
  }
}

struct Setting {
  const char* name;
  HostGroupOptions options;
};

class HostGroupOver : public testing::TestWithParam<Setting> {};

TEST_P(HostGroupOver, EveryAlgorithmGivesEveryRankTheSameSum) {
  for (int world = 1; world <= 9; ++world) {
    Groups groups = open_all(world, GetParam().options);
    for (const char* const algorithm : kAlgorithms) {
      for (const std::size_t count : kCounts) {
        for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
          SCOPED_TRACE(testing::Message()
                       << algorithm << " world " << world << " count " << count << " as " << numbers::name_of(format));
          const auto inputs = gradients(world, count);
          auto tensors = inputs;
          CollectiveOptions options;
          options.algorithm = algorithm;
          options.group = 3;
          const auto errors = reduce_all(groups, tensors, {.type = ElementType::kFp32, .format = format}, options);
          for (const auto& error : errors) ASSERT_FALSE(error) << error->message;
          expect_sums(inputs, tensors, world == 1 ? Format::kFp32 : format);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(HostGroupOver, FoldsIntegersExactlyAndAverages) {
  for (const int world : {2, 3, 8}) {
    Groups groups = open_all(world, GetParam().options);
    for (const char* const algorithm : kAlgorithms) {
      std::vector<std::vector<std::int32_t>> tensors;
      for (int rank = 0; rank < world; ++rank) tensors.emplace_back(1237, (1 << 20) * (rank + 1) + 1);
      CollectiveOptions options;
      options.algorithm = algorithm;
      options.group = 2;
      const AllReduce request{.type = ElementType::kInt32, .format = Format::kInt32, .average = true};
      for (const auto& error : reduce_all(groups, tensors, request, options)) ASSERT_FALSE(error) << error->message;
      const int sum = (1 << 20) * (world * (world + 1) / 2) + world;
      for (const auto& tensor : tensors) ASSERT_THAT(tensor, testing::Each(sum / world)) << algorithm;
    }
  }
}

TEST_P(HostGroupOver, RunsManyAllReducesAtOnce) {
  constexpr int kWorld = 4;
  Groups groups = open_all(kWorld, GetParam().options);
  std::vector<std::vector<std::vector<float>>> tensors(kWorld);
  std::vector<std::vector<HostGroup::Ticket>> tickets(kWorld);
  const auto count_of = [](std::size_t t) { return (t * 7919) % 60'000; };
  for (std::size_t t = 0; t < 40; ++t) {
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      auto& tensor = tensors[rank].emplace_back(count_of(t), static_cast<float>(rank + t));
      CollectiveOptions options;
      options.algorithm = kAlgorithms[t % 6];
      const auto ticket =
          groups[rank]->submit({.in = tensor.data(), .out = tensor.data(), .count = tensor.size()}, options);
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
  std::vector<HostGroup::Ticket> tickets;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    tickets.push_back(
        *groups[rank]->submit({.in = in.data(), .out = out[rank].data(), .count = 5000, .average = true}, {}));
  }
  std::vector<std::future<std::optional<Error>>> waiting;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    waiting.push_back(std::async(std::launch::async, [&, rank] { return finish(*groups[rank], tickets[rank]); }));
  }
  for (auto& each : waiting) EXPECT_FALSE(each.get());
  EXPECT_THAT(in, testing::Each(1.5f));
  for (const auto& each : out) EXPECT_THAT(each, testing::Each(1.5f));

  for (const Format format : {Format::kFp32, Format::kBf16, Format::kBfp}) {
    std::vector<std::vector<std::uint16_t>> halves(kWorld, std::vector<std::uint16_t>(777, 0x3fc0));  // 1.5 as bf16
    const AllReduce request{.type = ElementType::kBf16, .format = format};
    for (const auto& error : reduce_all(groups, halves, request, {})) ASSERT_FALSE(error) << error->message;
    for (const auto& each : halves) EXPECT_THAT(each, testing::Each(0x4090)) << numbers::name_of(format);  // 4.5
  }
}

INSTANTIATE_TEST_SUITE_P(Links, HostGroupOver,
                         testing::Values(Setting{"Shm", {}}, Setting{"Tcp", {.shm = false}},
                                         Setting{"Inline", {.inline_progress = true}},
                                         Setting{"InlineTcp", {.shm = false, .inline_progress = true}}),
                         [](const auto& setting) { return setting.param.name; });

// Halving-doubling folds in the pairwise order of the specification: the bits of the in-network fold.
TEST(HostGroup, HalvingDoublingEqualsThePairwiseFold) {
  for (const int world : {2, 4, 8}) {
    Groups groups = open_all(world);
    const auto inputs = gradients(world, 10'007);
    auto tensors = inputs;
    CollectiveOptions options;
    options.algorithm = "halving-doubling";
    for (const auto& error : reduce_all(groups, tensors, {}, options)) ASSERT_FALSE(error) << error->message;
    std::vector<const std::byte*> payloads;
    for (const auto& input : inputs) payloads.push_back(reinterpret_cast<const std::byte*>(input.data()));
    std::vector<float> folded(10'007);
    numbers::Folder folder(folded.size(), payloads.size());
    folder.fold({Format::kFp32}, payloads, folded.size(), reinterpret_cast<std::byte*>(folded.data()));
    for (const auto& tensor : tensors) ASSERT_EQ(tensor, folded);
  }
}

// More than a slice, and not a whole number of them.
TEST_P(HostGroupOver, FoldsLargeTensors) {
  for (const char* const algorithm : {"ring", "halving-doubling", "double-binary-tree", "recursive-doubling"}) {
    for (const Format format : {Format::kFp32, Format::kBfp}) {
      Groups groups = open_all(3, GetParam().options);
      const auto inputs = gradients(3, 1'300'003);
      auto tensors = inputs;
      CollectiveOptions options;
      options.algorithm = algorithm;
      const auto errors = reduce_all(groups, tensors, {.type = ElementType::kFp32, .format = format}, options);
      for (const auto& error : errors) ASSERT_FALSE(error) << error->message;
      expect_sums(inputs, tensors, format);
    }
  }
}

// Nobody drives rank 0 once its wait is over, so what it still has to send must have gone by then, however late its
// reader. How much the kernel takes of it is the kernel's to say: one of these sizes is a little more than that.
TEST(HostGroup, LeavesNothingUnsentInTheCallersThread) {
  CollectiveOptions options;
  options.algorithm = "star";  // rank 0 sends last
  for (std::size_t count = 300'000; count <= 1'800'000; count += 100'000) {
    Groups groups = open_all(3, {.shm = false, .inline_progress = true});
    auto tensors = gradients(3, count);
    std::vector<HostGroup::Ticket> tickets;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      auto* const data = tensors[rank].data();
      tickets.push_back(*groups[rank]->submit({.in = data, .out = data, .count = count}, options));
    }
    auto center = std::async(std::launch::async, [&] { return finish(*groups[0], tickets[0]); });
    for (int turn = 0; turn < 20; ++turn) {  // rank 1 hands its tensor over, and then looks away
      ASSERT_FALSE(groups[1]->wait(tickets[1], 0));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_FALSE(finish(*groups[2], tickets[2]));
    center.wait_for(std::chrono::milliseconds(30));
    EXPECT_FALSE(finish(*groups[1], tickets[1])) << count;
    EXPECT_FALSE(center.get());
    EXPECT_EQ(tensors[0], tensors[1]);
  }
}

TEST(HostGroup, TakesSharedMemoryOnOneMachine) {
  Groups groups = open_all(3);
  auto tensors = gradients(3, 1000);
  for (const auto& error : reduce_all(groups, tensors, {}, {})) ASSERT_FALSE(error) << error->message;
  for (auto& group : groups) {
    EXPECT_EQ(group->stats().shm_peers, 2);
    EXPECT_EQ(group->stats().tcp_peers, 0);
    EXPECT_GT(group->stats().shm.sent_bytes, 1000u * 4);
  }
}

}  // namespace
}  // namespace netfold::engine

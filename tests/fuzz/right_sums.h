// Shared by the fuzzers of the data path: a job of three workers whose sums must stay right under any input.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "protocol/world.h"
#include "support/random_seed.h"

namespace netfold::tests {

constexpr std::uint16_t kWorld = 3;

// One all-reduce of small whole numbers, whose sum is exact in any order.
inline void expect_a_right_sum(World& world, Prng& prng) {
  std::vector<std::vector<float>> tensors(kWorld, std::vector<float>(1 + prng.below(2000)));
  std::vector<float> expected(tensors[0].size());
  for (auto& tensor : tensors) {
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      tensor[i] = static_cast<float>(prng.below(1000));
      expected[i] += tensor[i];
    }
  }
  for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
    auto& tensor = tensors[rank];
    world.submit(rank, {tensor.data(), tensor.data(), tensor.size(), numbers::ElementType::kFp32,
                        numbers::Format::kFp32, false});
  }
  ASSERT_TRUE(world.run(1000 * kSecond));
  for (const auto& tensor : tensors) ASSERT_EQ(tensor, expected);
}

}  // namespace netfold::tests

// Tensors to sum, and the request that does it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "group/collective_request.h"

namespace netfold::tests {

constexpr Nanoseconds kDay = 24 * 3600 * kSecond;  // one chunk at a time over a very bad network takes long

// Of magnitudes that differ: the order of a sum shows in its bits.
inline std::vector<float> random_tensor(std::size_t count, Prng& prng) {
  std::vector<float> tensor(count);
  for (float& x : tensor) x = static_cast<float>(prng.unit() * 2 - 1) * static_cast<float>(1 << prng.below(20));
  return tensor;
}

// By rank.
inline std::vector<std::vector<float>> random_tensors(std::uint16_t world, std::size_t count, Prng& prng) {
  std::vector<std::vector<float>> tensors;
  for (std::uint16_t rank = 0; rank < world; ++rank) tensors.push_back(random_tensor(count, prng));
  return tensors;
}

inline group::CollectiveRequest in_place(std::vector<float>& tensor, numbers::Format format = numbers::Format::kFp32) {
  return {tensor.data(), tensor.data(), tensor.size(), numbers::ElementType::kFp32, format, false};
}

}  // namespace netfold::tests

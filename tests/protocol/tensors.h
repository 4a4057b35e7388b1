// Tensors to sum, and the request that does it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "group/collective_request.h"

namespace netfold::tests {

constexpr Nanoseconds kDay = 24 * 3600 * kSecond;  // one chunk at a time over a very bad network takes long

// By rank, of magnitudes that differ: the order of a sum shows in its bits.
inline std::vector<std::vector<float>> random_tensors(std::uint16_t world, std::size_t count, Prng& prng) {
  std::vector<std::vector<float>> tensors(world, std::vector<float>(count));
  for (auto& tensor : tensors) {
    for (float& x : tensor) x = static_cast<float>(prng.unit() * 2 - 1) * static_cast<float>(1 << prng.below(20));
  }
  return tensors;
}

inline group::CollectiveRequest in_place(std::vector<float>& tensor, numbers::Format format = numbers::Format::kFp32) {
  return {tensor.data(), tensor.data(), tensor.size(), numbers::ElementType::kFp32, format, false};
}

}  // namespace netfold::tests

// What a fold must give, bit for bit, by the definition and nothing else: over whole tensors, with the reference
// kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "group/collective_request.h"
#include "numbers/format.h"

namespace netfold::testing {

// The pairwise fold of ranks lo to hi - 1, word for word: fold(lo, hi) = x_lo if one; else
// fold(lo, lo+p) + fold(lo+p, hi), p = the largest power of two below the number.
template <class T>
std::vector<T> plain_fold(const std::vector<std::vector<T>>& inputs, std::size_t lo, std::size_t hi) {
  if (hi - lo == 1) return inputs[lo];
  std::size_t p = 1;
  while (p * 2 < hi - lo) p *= 2;
  std::vector<T> sum = plain_fold(inputs, lo, lo + p);
  const std::vector<T> other = plain_fold(inputs, lo + p, hi);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}

// An all-reduce by a switch. inputs[rank] holds `count` elements of `type`; so does the result.
std::vector<std::byte> plain_all_reduce(const std::vector<std::vector<std::byte>>& inputs, numbers::ElementType type,
                                        numbers::WireFormat wire, std::size_t count, bool average);

// What `rank` must get of an all-reduce, reduce-scatter or all-gather; inputs[rank] is its `in`, not encoded. Memory
// between the parts of two ranks is 0.
std::vector<std::byte> plain_result(const group::CollectiveRequest& request, std::vector<std::vector<std::byte>> inputs,
                                    std::size_t rank);

}  // namespace netfold::testing

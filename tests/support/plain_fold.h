// The definition of the pairwise fold, word for word, on plain vectors: what fast folds are held to.
#pragma once

#include <cstddef>
#include <vector>

namespace netfold::tests {

// fold(lo, hi) = x_lo if one; else fold(lo, lo+p) + fold(lo+p, hi), p = the largest power of two below the number.
inline std::vector<float> plain_fold(const std::vector<std::vector<float>>& inputs, std::size_t lo, std::size_t hi) {
  if (hi - lo == 1) return inputs[lo];
  std::size_t p = 1;
  while (p * 2 < hi - lo) p *= 2;
  std::vector<float> sum = plain_fold(inputs, lo, lo + p);
  const std::vector<float> other = plain_fold(inputs, lo + p, hi);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}

}  // namespace netfold::tests

// The tree of fold.h over vector registers: a column of a few vectors is summed over all ranks before the next column
// is touched, so each payload is read once and only the result is written.
//
// Vector is a type with operator+ of an instruction set's own file (in an unnamed namespace, so that no other file can
// pick up code compiled for that instruction set).
#pragma once

#include <cstddef>

#include "numbers/kernels.h"

namespace netfold::numbers {

// Arrays of vectors stay in registers only where every loop over them is unrolled.
template <class Vector, std::size_t n>
struct Column {
  Vector v[n];

  [[gnu::always_inline]] friend inline Column operator+(const Column& a, const Column& b) {
    Column sum;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < n; ++i) sum.v[i] = a.v[i] + b.v[i];
    return sum;
  }
};

// leaf(rank) is one rank's column. A complete subtree of n leaves, n a power of two, unrolled.
template <std::size_t n, class Sum, class Leaf>
[[gnu::always_inline]] inline Sum pairwise_complete(std::size_t first_rank, const Leaf& leaf) {
  if constexpr (n == 1) {
    return leaf(first_rank);
  } else {
    const Sum low = pairwise_complete<n / 2, Sum>(first_rank, leaf);
    return low + pairwise_complete<n / 2, Sum>(first_rank + n / 2, leaf);
  }
}

// Any number of leaves: complete subtrees of eight run a binary counter (a subtree merges with its left neighbour of
// the same size as a carry runs through a counter's low bits); what is left over is summed from the right.
template <class Sum, class Leaf>
[[gnu::always_inline]] inline Sum pairwise_any(std::size_t workers, const Leaf& leaf) {
  Sum levels[24];  // more than log2(kWorkersMax), and three for what is left over
  std::size_t depth = 0;
  std::size_t rank = 0;
  for (std::size_t eights = 0; rank + 8 <= workers; rank += 8, ++eights) {
    levels[depth++] = pairwise_complete<8, Sum>(rank, leaf);
    for (std::size_t carry = eights; (carry & 1) != 0; carry >>= 1, --depth) {
      levels[depth - 2] = levels[depth - 2] + levels[depth - 1];
    }
  }
  if ((workers & 4) != 0) levels[depth++] = pairwise_complete<4, Sum>(rank, leaf), rank += 4;
  if ((workers & 2) != 0) levels[depth++] = pairwise_complete<2, Sum>(rank, leaf), rank += 2;
  if ((workers & 1) != 0) levels[depth++] = leaf(rank);
  Sum sum = levels[depth - 1];
  for (std::size_t level = depth - 1; level > 0; --level) sum = levels[level - 1] + sum;
  return sum;
}

// load(payload, element, lanes) is one vector of a leaf, whose first `lanes` elements matter; store(element, lanes,
// vector) takes one of the sum. kWorkers is the number of payloads, or 0 where only the payloads know it.
template <class Vector, std::size_t n, std::size_t kWorkers, std::size_t kLanes, class Load, class Store>
[[gnu::always_inline]] inline void fold_column(Payloads payloads, std::size_t element, std::size_t lanes,
                                               const Load& load, const Store& store) {
  using Sum = Column<Vector, n>;
  const auto leaf = [=](std::size_t rank) __attribute__((always_inline)) {
    Sum column;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < n; ++i) column.v[i] = load(payloads[rank], element + i * kLanes, lanes);
    return column;
  };
  Sum sum;
  if constexpr (kWorkers == 0) {
    sum = pairwise_any<Sum>(payloads.size(), leaf);
  } else {
    sum = pairwise_complete<kWorkers, Sum>(0, leaf);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < n; ++i) store(element + i * kLanes, lanes, sum.v[i]);
}

// Columns of kWide vectors, then of one; the last may be short.
template <class Vector, std::size_t kWide, std::size_t kWorkers, std::size_t kLanes, class Load, class Store>
[[gnu::always_inline]] inline void fold_columns_of(Payloads payloads, std::size_t first, std::size_t count,
                                                   const Load& load, const Store& store) {
  const std::size_t end = first + count;
  std::size_t i = first;
  for (; i + kWide * kLanes <= end; i += kWide * kLanes) {
    fold_column<Vector, kWide, kWorkers, kLanes>(payloads, i, kLanes, load, store);
  }
  for (; i + kLanes <= end; i += kLanes) fold_column<Vector, 1, kWorkers, kLanes>(payloads, i, kLanes, load, store);
  if (i < end) fold_column<Vector, 1, kWorkers, kLanes>(payloads, i, end - i, load, store);
}

// The usual numbers of workers have loops of their own.
template <class Vector, std::size_t kWide, std::size_t kLanes, class Load, class Store>
[[gnu::always_inline]] inline void fold_columns(Payloads payloads, std::size_t first, std::size_t count,
                                                const Load& load, const Store& store) {
  switch (payloads.size()) {
    case 2: return fold_columns_of<Vector, kWide, 2, kLanes>(payloads, first, count, load, store);
    case 4: return fold_columns_of<Vector, kWide, 4, kLanes>(payloads, first, count, load, store);
    case 8: return fold_columns_of<Vector, kWide, 8, kLanes>(payloads, first, count, load, store);
    default: return fold_columns_of<Vector, kWide, 0, kLanes>(payloads, first, count, load, store);
  }
}

}  // namespace netfold::numbers

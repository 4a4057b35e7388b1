// Folds of plain formats: four vectors a column, the tree of pairwise.h in registers. Only avx512.cc includes this.
#pragma once

#include "numbers/avx512_plain.h"
#include "numbers/pairwise.h"

namespace netfold::numbers {

namespace {

constexpr std::size_t kWide = 4;  // vectors a column: 256 bytes of floats from each payload in turn

template <std::size_t n>
struct Floats {
  __m512 v[n];

  [[gnu::always_inline]] friend inline Floats operator+(const Floats& a, const Floats& b) {
    Floats sum;
    for (std::size_t i = 0; i < n; ++i) sum.v[i] = _mm512_add_ps(a.v[i], b.v[i]);
    return sum;
  }
};

template <std::size_t n>
struct Integers {
  __m512i v[n];

  [[gnu::always_inline]] friend inline Integers operator+(const Integers& a, const Integers& b) {
    Integers sum;
    for (std::size_t i = 0; i < n; ++i) sum.v[i] = _mm512_add_epi32(a.v[i], b.v[i]);
    return sum;
  }
};

// load(payload, element, lanes) is one vector of a leaf.
template <template <std::size_t> class Sum, std::size_t n, class Load, class Store>
[[gnu::always_inline]] inline void fold_column(Payloads payloads, std::size_t element, __mmask16 lanes,
                                               const Load& load, const Store& store) {
  const auto leaf = [&](std::size_t rank) __attribute__((always_inline)) {
    Sum<n> column;
    for (std::size_t i = 0; i < n; ++i) column.v[i] = load(payloads[rank], element + i * kLanes, lanes);
    return column;
  };
  const auto sum = pairwise<Sum<n>>(payloads.size(), leaf);
  for (std::size_t i = 0; i < n; ++i) store(element + i * kLanes, lanes, sum.v[i]);
}

template <template <std::size_t> class Sum, class Load, class Store>
[[gnu::always_inline]] inline void fold_columns(Payloads payloads, std::size_t first, std::size_t count,
                                                const Load& load, const Store& store) {
  const std::size_t end = first + count;
  std::size_t i = first;
  for (; i + kWide * kLanes <= end; i += kWide * kLanes) {
    fold_column<Sum, kWide>(payloads, i, 0xffff, load, store);
  }
  for (; i < end; i += kLanes) fold_column<Sum, 1>(payloads, i, first_lanes(end - i), load, store);
}

template <class Load>
[[gnu::always_inline]] inline void fold_floats(Payloads payloads, std::size_t first, std::size_t count, float* out,
                                               const Load& load) {
  fold_columns<Floats>(payloads, first, count, load, [=](std::size_t i, __mmask16 lanes, __m512 sum) {
    _mm512_mask_storeu_ps(out + (i - first), lanes, sum);
  });
}

void fold_fp32(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, __mmask16 lanes) {
    return _mm512_maskz_loadu_ps(lanes, payload + i * 4);
  });
}

void fold_fp16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, __mmask16 lanes) {
    return widen_fp16(_mm256_maskz_loadu_epi16(lanes, payload + i * 2));
  });
}

void fold_bf16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, __mmask16 lanes) {
    return widen_bf16(_mm256_maskz_loadu_epi16(lanes, payload + i * 2));
  });
}

void fold_int32(Payloads payloads, std::size_t first, std::size_t count, std::int32_t* out) {
  const auto load = [](const std::byte* payload, std::size_t i, __mmask16 lanes) {
    return _mm512_maskz_loadu_epi32(lanes, payload + i * 4);
  };
  fold_columns<Integers>(payloads, first, count, load, [=](std::size_t i, __mmask16 lanes, __m512i sum) {
    _mm512_mask_storeu_epi32(out + (i - first), lanes, sum);
  });
}

}  // namespace

}  // namespace netfold::numbers

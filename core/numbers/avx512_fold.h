// Folds of plain formats: four vectors a column, the tree of pairwise.h in registers. Only avx512.cc includes this.
#pragma once

#include "numbers/avx512_plain.h"
#include "numbers/pairwise.h"

namespace netfold::numbers {

namespace {

constexpr std::size_t kWide = 4;  // vectors a column: 256 bytes of floats from each payload in turn

struct Floats {
  __m512 v;
  [[gnu::always_inline]] friend inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
};

struct Integers {
  __m512i v;
  [[gnu::always_inline]] friend inline Integers operator+(Integers a, Integers b) {
    return {_mm512_add_epi32(a.v, b.v)};
  }
};

template <class Load>
[[gnu::always_inline]] inline void fold_floats(Payloads payloads, std::size_t first, std::size_t count, float* out,
                                               const Load& load) {
  fold_columns<Floats, kWide, kLanes>(payloads, first, count, load, [=](std::size_t i, std::size_t lanes, Floats sum) {
    _mm512_mask_storeu_ps(out + (i - first), first_lanes(lanes), sum.v);
  });
}

void fold_fp32(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Floats{_mm512_maskz_loadu_ps(first_lanes(lanes), payload + i * 4)};
  });
}

void fold_fp16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Floats{widen_fp16(_mm256_maskz_loadu_epi16(first_lanes(lanes), payload + i * 2))};
  });
}

void fold_bf16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Floats{widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(lanes), payload + i * 2))};
  });
}

void fold_int32(Payloads payloads, std::size_t first, std::size_t count, std::int32_t* out) {
  const auto load = [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Integers{_mm512_maskz_loadu_epi32(first_lanes(lanes), payload + i * 4)};
  };
  const auto store = [=](std::size_t i, std::size_t lanes, Integers sum) {
    _mm512_mask_storeu_epi32(out + (i - first), first_lanes(lanes), sum.v);
  };
  fold_columns<Integers, kWide, kLanes>(payloads, first, count, load, store);
}

}  // namespace

}  // namespace netfold::numbers

// Plain formats and their folds, eight elements at a time; the last few under a mask or by way of a small buffer. Only
// avx2.cc includes this.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "numbers/pairwise.h"

namespace netfold::numbers {

namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kWide = 2;  // vectors a column of a fold

// All ones in the first `count` lanes.
[[gnu::always_inline]] inline __m256i first_lanes(std::size_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}

[[gnu::always_inline]] inline __m256 load_floats(const void* from, std::size_t lanes) {
  const auto* floats = static_cast<const float*>(from);
  return lanes == kLanes ? _mm256_loadu_ps(floats) : _mm256_maskload_ps(floats, first_lanes(lanes));
}

[[gnu::always_inline]] inline void store_floats(float* to, std::size_t lanes, __m256 value) {
  if (lanes == kLanes) return _mm256_storeu_ps(to, value);
  _mm256_maskstore_ps(to, first_lanes(lanes), value);
}

[[gnu::always_inline]] inline __m256i load_integers(const void* from, std::size_t lanes) {
  return _mm256_castps_si256(load_floats(from, lanes));
}

[[gnu::always_inline]] inline __m128i load_halves(const void* from, std::size_t lanes) {
  __m128i halves = _mm_setzero_si128();
  __builtin_memcpy(&halves, from, lanes * sizeof(std::uint16_t));
  return halves;
}

[[gnu::always_inline]] inline void store_halves(std::uint16_t* to, std::size_t lanes, __m128i halves) {
  __builtin_memcpy(to, &halves, lanes * sizeof(std::uint16_t));
}

[[gnu::always_inline]] inline __m256 widen_fp16(__m128i half) {
  return _mm256_cvtph_ps(half);
}

[[gnu::always_inline]] inline __m128i round_fp16(__m256 value) {
  return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

[[gnu::always_inline]] inline __m256 widen_bf16(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

[[gnu::always_inline]] inline __m128i round_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i half = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, is_nan);
  const __m256i packed = _mm256_packus_epi32(half, half);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

// One element-wise loop: step(i, lanes in use).
template <class Step>
[[gnu::always_inline]] inline void for_lanes(std::size_t count, const Step& step) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) step(i, kLanes);
  if (i < count) step(i, count - i);
}

void add_fp32(const float* a, const float* b, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    store_floats(out + i, lanes, _mm256_add_ps(load_floats(a + i, lanes), load_floats(b + i, lanes)));
  });
}

void add_int32(const std::int32_t* a, const std::int32_t* b, std::size_t count, std::int32_t* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    const __m256i sum = _mm256_add_epi32(load_integers(a + i, lanes), load_integers(b + i, lanes));
    store_floats(reinterpret_cast<float*>(out + i), lanes, _mm256_castsi256_ps(sum));
  });
}

void divide_fp32(const float* in, float divisor, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    store_floats(out + i, lanes, _mm256_div_ps(load_floats(in + i, lanes), _mm256_set1_ps(divisor)));
  });
}

void fp16_to_fp32(const std::uint16_t* in, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    store_floats(out + i, lanes, widen_fp16(load_halves(in + i, lanes)));
  });
}

void fp32_to_fp16(const float* in, std::size_t count, std::uint16_t* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    store_halves(out + i, lanes, round_fp16(load_floats(in + i, lanes)));
  });
}

void bf16_to_fp32(const std::uint16_t* in, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    store_floats(out + i, lanes, widen_bf16(load_halves(in + i, lanes)));
  });
}

void fp32_to_bf16(const float* in, std::size_t count, std::uint16_t* out) {
  for_lanes(count, [=](std::size_t i, std::size_t lanes) {
    store_halves(out + i, lanes, round_bf16(load_floats(in + i, lanes)));
  });
}

struct Floats {
  __m256 v;
  [[gnu::always_inline]] friend inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.v, b.v)}; }
};

struct Integers {
  __m256i v;
  [[gnu::always_inline]] friend inline Integers operator+(Integers a, Integers b) {
    return {_mm256_add_epi32(a.v, b.v)};
  }
};

template <class Load>
[[gnu::always_inline]] inline void fold_floats(Payloads payloads, std::size_t first, std::size_t count, float* out,
                                               const Load& load) {
  fold_columns<Floats, kWide, kLanes>(payloads, first, count, load, [=](std::size_t i, std::size_t lanes, Floats sum) {
    store_floats(out + (i - first), lanes, sum.v);
  });
}

void fold_fp32(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Floats{load_floats(payload + i * 4, lanes)};
  });
}

void fold_fp16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Floats{widen_fp16(load_halves(payload + i * 2, lanes))};
  });
}

void fold_bf16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Floats{widen_bf16(load_halves(payload + i * 2, lanes))};
  });
}

void fold_int32(Payloads payloads, std::size_t first, std::size_t count, std::int32_t* out) {
  const auto load = [](const std::byte* payload, std::size_t i, std::size_t lanes) {
    return Integers{load_integers(payload + i * 4, lanes)};
  };
  const auto store = [=](std::size_t i, std::size_t lanes, Integers sum) {
    store_floats(reinterpret_cast<float*>(out + (i - first)), lanes, _mm256_castsi256_ps(sum.v));
  };
  fold_columns<Integers, kWide, kLanes>(payloads, first, count, load, store);
}

}  // namespace

}  // namespace netfold::numbers

// Plain formats, sixteen elements at a time; the last few under a mask. Only avx512.cc includes this.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace netfold::numbers {

namespace {

constexpr std::size_t kLanes = 16;

[[gnu::always_inline]] inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
}

[[gnu::always_inline]] inline __m512 widen_fp16(__m256i half) {
  return _mm512_cvtph_ps(half);
}

[[gnu::always_inline]] inline __m256i round_fp16(__m512 value) {
  return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

[[gnu::always_inline]] inline __m512 widen_bf16(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Not vcvtneps2bf16, which flushes subnormals.
[[gnu::always_inline]] inline __m256i round_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i top = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i half = _mm512_mask_or_epi32(_mm512_srli_epi32(rounded, 16), is_nan, top, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(half);
}

// One element-wise loop: out[i] = step(i, lanes in use).
template <class Step>
[[gnu::always_inline]] inline void for_lanes(std::size_t count, const Step& step) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) step(i, static_cast<__mmask16>(0xffff));
  if (i < count) step(i, first_lanes(count - i));
}

void add_fp32(const float* a, const float* b, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, a + i), _mm512_maskz_loadu_ps(lanes, b + i));
    _mm512_mask_storeu_ps(out + i, lanes, sum);
  });
}

void add_int32(const std::int32_t* a, const std::int32_t* b, std::size_t count, std::int32_t* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    const __m512i sum =
        _mm512_add_epi32(_mm512_maskz_loadu_epi32(lanes, a + i), _mm512_maskz_loadu_epi32(lanes, b + i));
    _mm512_mask_storeu_epi32(out + i, lanes, sum);
  });
}

void divide_fp32(const float* in, float divisor, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    const __m512 quotient = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, in + i), _mm512_set1_ps(divisor));
    _mm512_mask_storeu_ps(out + i, lanes, quotient);
  });
}

void fp16_to_fp32(const std::uint16_t* in, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    _mm512_mask_storeu_ps(out + i, lanes, widen_fp16(_mm256_maskz_loadu_epi16(lanes, in + i)));
  });
}

void fp32_to_fp16(const float* in, std::size_t count, std::uint16_t* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    _mm256_mask_storeu_epi16(out + i, lanes, round_fp16(_mm512_maskz_loadu_ps(lanes, in + i)));
  });
}

void bf16_to_fp32(const std::uint16_t* in, std::size_t count, float* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    _mm512_mask_storeu_ps(out + i, lanes, widen_bf16(_mm256_maskz_loadu_epi16(lanes, in + i)));
  });
}

void fp32_to_bf16(const float* in, std::size_t count, std::uint16_t* out) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    _mm256_mask_storeu_epi16(out + i, lanes, round_bf16(_mm512_maskz_loadu_ps(lanes, in + i)));
  });
}

}  // namespace

}  // namespace netfold::numbers

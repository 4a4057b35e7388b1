// bfp of any shape: a block's mantissas are made eight lanes at a time as bytes; eight bytes become m + 1 bytes of the
// wire with pext, and back with pdep. Only avx2.cc includes this.
#pragma once

#include <immintrin.h>

#include "numbers/avx2_plain.h"
#include "numbers/bfp.h"

namespace netfold::numbers {

namespace {

struct Nearest {
  [[gnu::always_inline]] __m256i operator()(__m256 scaled, std::size_t) const { return _mm256_cvtps_epi32(scaled); }
};

// draw() of bfp.h in eight lanes.
class Drawn {
 public:
  explicit Drawn(RoundingSeed seed) : key_(draw_key(seed.seed)), first_index_(seed.first_index) {}

  [[gnu::always_inline]] __m256i operator()(__m256 scaled, std::size_t first) const {
    const auto index = static_cast<int>(first_index_ + static_cast<std::uint32_t>(first) + key_.before);
    __m256i x = _mm256_add_epi32(_mm256_set1_epi32(index), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(static_cast<int>(kDrawMultiplierFirst)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 13));
    x = _mm256_add_epi32(x, _mm256_set1_epi32(static_cast<int>(key_.between)));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(static_cast<int>(kDrawMultiplierSecond)));
    const __m256i fixed_point = _mm256_cvtps_epi32(_mm256_mul_ps(scaled, _mm256_set1_ps(65536.0f)));
    return _mm256_srai_epi32(_mm256_add_epi32(fixed_point, _mm256_srli_epi32(x, 16)), 16);
  }

 private:
  DrawKey key_;
  std::uint32_t first_index_;
};

// The low m + 1 bits of each of eight bytes.
[[gnu::always_inline]] inline std::uint64_t mantissa_bits(BfpShape shape) {
  return 0x0101010101010101u * ((2u << shape.mantissa) - 1);
}

[[gnu::always_inline]] inline std::uint32_t largest_exponent(const float* in, std::size_t count) {
  __m256i largest = _mm256_setzero_si256();
  for_lanes(count, [&](std::size_t i, std::size_t lanes) {
    const __m256i bits = load_integers(in + i, lanes);
    largest = _mm256_max_epu32(largest, _mm256_add_epi32(bits, bits));
  });
  __m128i half = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half)) >> 24;
}

// The low byte of each lane.
[[gnu::always_inline]] inline std::uint64_t low_bytes(__m256i q) {
  const __m256i words = _mm256_packs_epi32(q, q);
  const __m128i both = _mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packs_epi16(both, both)));
}

// `first` is the index of in[0] in the tensor; `count` is at most the block.
template <class Quantise>
[[gnu::always_inline]] inline void encode_block(BfpShape shape, const float* in, std::size_t count, std::size_t first,
                                                std::byte* out, const Quantise& quantise) {
  const std::uint32_t m = shape.mantissa;
  const std::uint32_t exponent = largest_exponent(in, count);
  if (exponent < m || exponent == kExponentSpecial) {
    __builtin_memset(out, 0, bfp_block_bytes(shape));
    if (exponent == kExponentSpecial) *out = std::byte{255};
    return;
  }
  *out++ = static_cast<std::byte>(exponent);
  const __m256i scale_bits = _mm256_set1_epi32(static_cast<int>(encode_scale_exponent(m, exponent) << 23));
  const __m256i limit = _mm256_set1_epi32((1 << m) - 1);
  const __m256i lower_limit = _mm256_set1_epi32(-((1 << m) - 1));
  const std::uint64_t bits = mantissa_bits(shape);
  for (std::size_t i = 0; i < shape.block; i += kLanes, out += m + 1) {
    const std::size_t left = i < count ? count - i : 0;  // padding is zero, which no draw rounds up
    const __m256 x = load_floats(in + (left > 0 ? i : 0), left < kLanes ? left : kLanes);
    const __m256i q = quantise(_mm256_mul_ps(x, _mm256_castsi256_ps(scale_bits)), first + i);
    const __m256i clamped = _mm256_max_epi32(_mm256_min_epi32(q, limit), lower_limit);
    const std::uint64_t packed = _pext_u64(low_bytes(clamped), bits);
    __builtin_memcpy(out, &packed, m + 1);
  }
}

template <class Quantise>
void encode_any_shape(BfpShape shape, const float* in, std::size_t count, std::byte* out, const Quantise& quantise) {
  const std::size_t block = shape.block;
  for (std::size_t done = 0; done < count; done += block, out += bfp_block_bytes(shape)) {
    const std::size_t left = count - done;
    encode_block(shape, in + done, left < block ? left : block, done, out, quantise);
  }
}

// Eight mantissas, sign-extended from m + 1 bits, times the block's scale. fma with +0 is exact here and turns -0 (from
// e = 0) into +0.
[[gnu::always_inline]] inline __m256 decode_lanes(const std::byte* packed, BfpShape shape, float scale) {
  std::uint64_t bytes = 0;
  __builtin_memcpy(&bytes, packed, shape.mantissa + 1u);
  const __m128i spread = _mm_cvtsi64_si128(static_cast<long long>(_pdep_u64(bytes, mantissa_bits(shape))));
  const __m128i sign = _mm_set1_epi8(static_cast<char>(1 << shape.mantissa));
  const __m128i q = _mm_sub_epi8(_mm_xor_si128(spread, sign), sign);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), _mm256_set1_ps(scale), _mm256_setzero_ps());
}

template <bool kAdd>
void decode_any_shape(BfpShape shape, const std::byte* in, std::size_t count, float* out) {
  const std::size_t block = shape.block;
  for (std::size_t done = 0; done < count; done += block, in += bfp_block_bytes(shape)) {
    const float scale = kDecodeScale[shape.mantissa][static_cast<std::uint8_t>(*in)];
    const std::size_t block_count = count - done < block ? count - done : block;
    for_lanes(block_count, [=](std::size_t i, std::size_t lanes) {
      const __m256 decoded = decode_lanes(in + 1 + i / kLanes * (shape.mantissa + 1u), shape, scale);
      float* at = out + done + i;
      store_floats(at, lanes, kAdd ? _mm256_add_ps(load_floats(at, lanes), decoded) : decoded);
    });
  }
}

}  // namespace

}  // namespace netfold::numbers

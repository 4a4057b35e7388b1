// bfp of any shape: a block's mantissas are made sixteen lanes at a time as bytes; eight bytes become m + 1 bytes of
// the wire with pext, and back with pdep. Only avx512.cc includes this.
#pragma once

#include <immintrin.h>

#include "numbers/avx512_plain.h"
#include "numbers/bfp.h"

namespace netfold::numbers {

namespace {

struct Nearest {
  [[gnu::always_inline]] __m512i operator()(__m512 scaled, std::size_t) const { return _mm512_cvtps_epi32(scaled); }
};

// draw() of bfp.h in sixteen lanes.
class Drawn {
 public:
  explicit Drawn(RoundingSeed seed) : key_(draw_key(seed.seed)), first_index_(seed.first_index) {}

  [[gnu::always_inline]] __m512i operator()(__m512 scaled, std::size_t first) const {
    const auto index = static_cast<int>(first_index_ + static_cast<std::uint32_t>(first) + key_.before);
    const __m512i count_up = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i x = _mm512_add_epi32(_mm512_set1_epi32(index), count_up);
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32(static_cast<int>(kDrawMultiplierFirst)));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 13));
    x = _mm512_add_epi32(x, _mm512_set1_epi32(static_cast<int>(key_.between)));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32(static_cast<int>(kDrawMultiplierSecond)));
    const __m512i fixed_point = _mm512_cvtps_epi32(_mm512_mul_ps(scaled, _mm512_set1_ps(65536.0f)));
    return _mm512_srai_epi32(_mm512_add_epi32(fixed_point, _mm512_srli_epi32(x, 16)), 16);
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
  __m512i largest = _mm512_setzero_si512();
  for_lanes(count, [&](std::size_t i, __mmask16 lanes) {
    const __m512i bits = _mm512_maskz_loadu_epi32(lanes, in + i);
    largest = _mm512_max_epu32(largest, _mm512_add_epi32(bits, bits));
  });
  return _mm512_reduce_max_epu32(largest) >> 24;
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
  const __m512 scale =
      _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(encode_scale_exponent(m, exponent) << 23)));
  const __m512i limit = _mm512_set1_epi32((1 << m) - 1);
  const __m512i lower_limit = _mm512_set1_epi32(-((1 << m) - 1));
  const std::uint64_t bits = mantissa_bits(shape);
  for (std::size_t i = 0; i < shape.block; i += kLanes) {
    const __mmask16 lanes = i < count ? first_lanes(count - i) : __mmask16{0};
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, in + i), scale);
    // Padding is zero, which no draw rounds up.
    const __m512i q = _mm512_max_epi32(_mm512_min_epi32(quantise(scaled, first + i), limit), lower_limit);
    const __m128i bytes = _mm512_cvtepi32_epi8(q);
    const std::uint64_t low = _pext_u64(static_cast<std::uint64_t>(_mm_cvtsi128_si64(bytes)), bits);
    __builtin_memcpy(out, &low, m + 1);
    out += m + 1;
    if (shape.block == 8) return;
    const std::uint64_t high = _pext_u64(static_cast<std::uint64_t>(_mm_extract_epi64(bytes, 1)), bits);
    __builtin_memcpy(out, &high, m + 1);
    out += m + 1;
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

// Sixteen mantissas, sign-extended from m + 1 bits to bytes; `has_second` is false in a block of eight.
[[gnu::always_inline]] inline __m128i unpack_mantissas(const std::byte* in, BfpShape shape, bool has_second) {
  const std::size_t packed_bytes = shape.mantissa + 1u;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  __builtin_memcpy(&low, in, packed_bytes);
  if (has_second) __builtin_memcpy(&high, in + packed_bytes, packed_bytes);
  const std::uint64_t bits = mantissa_bits(shape);
  const __m128i bytes =
      _mm_set_epi64x(static_cast<long long>(_pdep_u64(high, bits)), static_cast<long long>(_pdep_u64(low, bits)));
  const __m128i sign = _mm_set1_epi8(static_cast<char>(1 << shape.mantissa));
  return _mm_sub_epi8(_mm_xor_si128(bytes, sign), sign);
}

template <bool kAdd>
[[gnu::always_inline]] inline void decode_lanes(__m128i mantissas, float scale, __mmask16 lanes, float* out) {
  const __m512 q = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(mantissas));
  const __m512 decoded = _mm512_fmadd_ps(q, _mm512_set1_ps(scale), _mm512_setzero_ps());
  if constexpr (kAdd) {
    _mm512_mask_storeu_ps(out, lanes, _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, out), decoded));
  } else {
    _mm512_mask_storeu_ps(out, lanes, decoded);
  }
}

template <bool kAdd>
void decode_any_shape(BfpShape shape, const std::byte* in, std::size_t count, float* out) {
  const std::size_t block = shape.block;
  const std::size_t lanes_bytes = 2 * (shape.mantissa + 1u);
  for (std::size_t done = 0; done < count; done += block, in += bfp_block_bytes(shape)) {
    const std::size_t left = count - done < block ? count - done : block;
    const float scale = kDecodeScale[shape.mantissa][static_cast<std::uint8_t>(*in)];
    const std::byte* packed = in + 1;
    for (std::size_t i = 0; i < left; i += kLanes, packed += lanes_bytes) {
      const __m128i mantissas = unpack_mantissas(packed, shape, block > 8);
      decode_lanes<kAdd>(mantissas, scale, first_lanes(left - i), out + done + i);
    }
  }
}

// Looks at 64 bytes at a time, and in them at the bytes that are exponents.
bool exponents_are_well_formed(BfpShape shape, const std::byte* in, std::size_t count) {
  const std::size_t stride = bfp_block_bytes(shape);
  std::size_t blocks = (count + shape.block - 1) / shape.block;
  const std::size_t blocks_per_load = 63 / stride + 1;
  const __m512i lowest = _mm512_set1_epi8(static_cast<char>(shape.mantissa - 1));
  __mmask64 malformed = 0;
  for (; blocks > 0; in += blocks_per_load * stride) {
    const std::size_t here = blocks < blocks_per_load ? blocks : blocks_per_load;
    __mmask64 exponents = 0;
    for (std::size_t i = 0; i < here; ++i) exponents |= __mmask64{1} << i * stride;
    const __m512i less_one = _mm512_sub_epi8(_mm512_maskz_loadu_epi8(exponents, in), _mm512_set1_epi8(1));
    malformed |= _mm512_mask_cmplt_epu8_mask(exponents, less_one, lowest);
    blocks -= here;
  }
  return malformed == 0;
}

}  // namespace

}  // namespace netfold::numbers

// bfp<16, 7>, the hot shape: a block is one vector of floats and 17 bytes on the wire. Only avx512.cc includes this.
#pragma once

#include <immintrin.h>

#include "numbers/avx512_fold.h"
#include "numbers/bfp.h"

namespace netfold::numbers {

namespace {

constexpr std::size_t kMsfp16Bytes = 17;
constexpr std::size_t kBlocksPerGroup = 16;  // encoded together, so that their exponents fill one vector

// Twice the bits of sixteen floats: the sign is gone, and the larger the number, the larger its exponent field.
[[gnu::always_inline]] inline __m512i doubled_bits(const float* in) {
  const __m512i bits = _mm512_loadu_si512(in);
  return _mm512_add_epi32(bits, bits);
}

// Row j holds the doubled bits of block j. largest_of_rows<1, 0> has in lane j the largest of row j: four steps each
// take two vectors, gather half the lanes of both twice, and keep the larger of the two. The step that merges rows
// that differ in a bit of their number also puts them apart in that bit of the lane's number.
template <unsigned step, unsigned first_row>
[[gnu::always_inline]] inline __m512i largest_of_rows(const float* in) {
  if constexpr (step == kBlocksPerGroup) {
    return doubled_bits(in + first_row * kLanes);
  } else {
    const __m512i a = largest_of_rows<step * 2, first_row>(in);
    const __m512i b = largest_of_rows<step * 2, first_row + step>(in);
    if constexpr (step == 8) {
      return _mm512_max_epu32(_mm512_mask_blend_epi64(0xf0, a, b), _mm512_shuffle_i64x2(a, b, 0x4e));
    } else if constexpr (step == 4) {
      const __m512i swap_quarters = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
      return _mm512_max_epu32(_mm512_mask_blend_epi64(0xcc, a, b), _mm512_permutex2var_epi64(a, swap_quarters, b));
    } else if constexpr (step == 2) {
      return _mm512_max_epu32(_mm512_mask_blend_epi64(0xaa, a, b), _mm512_alignr_epi8(b, a, 8));
    } else {
      const __m512i swap_lanes = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
      return _mm512_max_epu32(_mm512_mask_blend_epi32(0xaaaa, a, b), _mm512_permutex2var_epi32(a, swap_lanes, b));
    }
  }
}

// What a group of blocks needs before its mantissas can be made.
struct GroupExponents {
  __m512i wire;       // e of each block
  __m512i scale;      // 2^(127 - E + 6) of each block, 0 where the block is all zeros; as bits of floats
  __mmask16 special;  // blocks with an Inf or a NaN
};

// From twice the absolute value's bits: the exponent field is in the top byte.
[[gnu::always_inline]] inline GroupExponents exponents_of(__m512i doubled, std::uint32_t mantissa) {
  const __m512i exponent = _mm512_srli_epi32(doubled, 24);
  const __mmask16 counts = _mm512_cmpge_epu32_mask(exponent, _mm512_set1_epi32(static_cast<int>(mantissa)));
  const __m512i scale_exponent = _mm512_sub_epi32(_mm512_set1_epi32(static_cast<int>(253 + mantissa)), exponent);
  return {_mm512_maskz_mov_epi32(counts, exponent), _mm512_maskz_slli_epi32(counts, scale_exponent, 23),
          _mm512_cmpeq_epi32_mask(exponent, _mm512_set1_epi32(kExponentSpecial))};
}

// Where the bytes of four blocks' wire form come from: 64 mantissas as vpack leaves them (4-byte word w of block j at
// word 4 w + j), then the exponents at 64 + first_block. Of 68 bytes these are the first 64.
struct alignas(64) WireOrder {
  std::uint8_t from[4][64];
};
constexpr WireOrder kWireOrder = [] {
  WireOrder order{};
  for (unsigned quad = 0; quad < 4; ++quad) {
    for (unsigned at = 0; at < 64; ++at) {
      const unsigned block = at / kMsfp16Bytes;
      const unsigned within = at % kMsfp16Bytes;
      const unsigned element = within - 1;
      order.from[quad][at] =
          static_cast<std::uint8_t>(within == 0 ? 64 + quad * 4 + block : (element / 4 * 4 + block) * 4 + element % 4);
    }
  }
  return order;
}();

[[gnu::always_inline]] inline __m512i nearest_mantissas(__m512 x, float scale) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(scale)));
}

// The 64 mantissas of four blocks; saturation clamps to +127, the maximum to -127.
[[gnu::always_inline]] inline __m512i pack_mantissas(__m512i q0, __m512i q1, __m512i q2, __m512i q3) {
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(q0, q1), _mm512_packs_epi32(q2, q3));
  return _mm512_max_epi8(packed, _mm512_set1_epi8(-127));
}

// "If E = 255, e = 255 and the mantissas are 0": the rare case is mended after the block is written.
[[gnu::noinline]] void clear_special(__mmask16 special, std::byte* out) {
  for (unsigned block = 0; block < kBlocksPerGroup; ++block) {
    if ((special >> block & 1) != 0) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + block * kMsfp16Bytes + 1), _mm_setzero_si128());
    }
  }
}

// Sixteen blocks: 256 floats to 272 bytes.
[[gnu::always_inline]] inline void encode_group(const float* in, std::byte* out) {
  const GroupExponents exponents = exponents_of(largest_of_rows<1, 0>(in), 7);
  const __m512i wire_exponents = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(exponents.wire));
  alignas(64) float scale[kBlocksPerGroup];
  _mm512_store_si512(scale, exponents.scale);
#pragma GCC unroll 4
  for (std::size_t quad = 0; quad < 4; ++quad) {
    const float* x = in + quad * 4 * kLanes;
    const float* s = scale + quad * 4;
    const __m512i mantissas = pack_mantissas(nearest_mantissas(_mm512_loadu_ps(x), s[0]),
                                             nearest_mantissas(_mm512_loadu_ps(x + kLanes), s[1]),
                                             nearest_mantissas(_mm512_loadu_ps(x + 2 * kLanes), s[2]),
                                             nearest_mantissas(_mm512_loadu_ps(x + 3 * kLanes), s[3]));
    const __m512i order = _mm512_load_si512(kWireOrder.from[quad]);
    std::byte* quad_out = out + quad * 4 * kMsfp16Bytes;
    // The last word of the last block is where it belongs already: it lands at bytes 64 to 67, the rest is overwritten.
    _mm512_storeu_si512(quad_out + 4, mantissas);
    _mm512_storeu_si512(quad_out, _mm512_permutex2var_epi8(mantissas, order, wire_exponents));
  }
  if (exponents.special != 0) [[unlikely]]
    clear_special(exponents.special, out);
}

void msfp16_encode(const float* in, std::size_t count, std::byte* out) {
  constexpr std::size_t kGroup = kBlocksPerGroup * kLanes;
  for (; count >= kGroup; count -= kGroup, in += kGroup, out += kBlocksPerGroup * kMsfp16Bytes) encode_group(in, out);
  if (count == 0) return;
  // The last few blocks: as a whole group that is padded with zeros.
  alignas(64) float padded[kGroup];
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    const __mmask16 lanes = i < count ? first_lanes(count - i) : __mmask16{0};
    _mm512_store_ps(padded + i, _mm512_maskz_loadu_ps(lanes, in + i));
  }
  std::byte group[kBlocksPerGroup * kMsfp16Bytes];
  encode_group(padded, group);
  __builtin_memcpy(out, group, (count + kLanes - 1) / kLanes * kMsfp16Bytes);
}

// fma with +0 gives q * scale, which is exact, and turns -0 (from e = 0) into +0.
[[gnu::always_inline]] inline __m512 decode_block(const std::byte* block) {
  const __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 1)));
  const float scale = kDecodeScale[7][static_cast<std::uint8_t>(*block)];
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(q), _mm512_set1_ps(scale), _mm512_setzero_ps());
}

void msfp16_decode(const std::byte* in, std::size_t count, float* out) {
  for (; count >= kLanes; count -= kLanes, in += kMsfp16Bytes, out += kLanes) _mm512_storeu_ps(out, decode_block(in));
  if (count > 0) _mm512_mask_storeu_ps(out, first_lanes(count), decode_block(in));
}

void msfp16_decode_add(const std::byte* in, std::size_t count, float* sum) {
  for_lanes(count, [=](std::size_t i, __mmask16 lanes) {
    const __m512 decoded = decode_block(in + i / kLanes * kMsfp16Bytes);
    _mm512_mask_storeu_ps(sum + i, lanes, _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, sum + i), decoded));
  });
}

void msfp16_fold(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out, [](const std::byte* payload, std::size_t i, std::size_t) {
    return Floats{decode_block(payload + i / kLanes * kMsfp16Bytes)};
  });
}

}  // namespace

}  // namespace netfold::numbers

// bfp<16, 7>, the hot shape: a block is two vectors of floats and 17 bytes on the wire. Only avx2.cc includes this.
#pragma once

#include "numbers/avx2_bfp.h"

namespace netfold::numbers {

namespace {

constexpr std::size_t kBlock = 16;
constexpr std::size_t kMsfp16Bytes = 17;
constexpr std::size_t kBlocksPerGroup = 8;  // encoded together, so that their exponents fill one vector

// Row j holds, doubled, the bits of block j, the larger of each two. largest_of_rows<1, 0> has in lane j the largest of
// row j: three steps each take two vectors, gather half the lanes of both twice, and keep the larger of the two. The
// step that merges rows that differ in a bit of their number also puts them apart in that bit of the lane's number.
template <unsigned step, unsigned first_row>
[[gnu::always_inline]] inline __m256i largest_of_rows(const float* in) {
  if constexpr (step == kBlocksPerGroup) {
    const __m256i low = load_integers(in + first_row * kBlock, kLanes);
    const __m256i high = load_integers(in + first_row * kBlock + kLanes, kLanes);
    return _mm256_max_epu32(_mm256_add_epi32(low, low), _mm256_add_epi32(high, high));
  } else {
    const __m256i a = largest_of_rows<step * 2, first_row>(in);
    const __m256i b = largest_of_rows<step * 2, first_row + step>(in);
    if constexpr (step == 4) {
      return _mm256_max_epu32(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
    } else if constexpr (step == 2) {
      return _mm256_max_epu32(_mm256_blend_epi32(a, b, 0xcc), _mm256_alignr_epi8(b, a, 8));
    } else {
      const __m256i swapped = _mm256_blend_epi32(_mm256_srli_epi64(a, 32), _mm256_slli_epi64(b, 32), 0xaa);
      return _mm256_max_epu32(_mm256_blend_epi32(a, b, 0xaa), swapped);
    }
  }
}

[[gnu::always_inline]] inline __m256i nearest_mantissas(const float* in, float scale) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(in), _mm256_set1_ps(scale)));
}

// Two blocks' mantissas; saturation clamps to +127, the maximum to -127.
[[gnu::always_inline]] inline void encode_two(const float* in, const float* scale, const std::uint32_t* exponent,
                                              std::byte* out) {
  const __m256i first = _mm256_packs_epi32(nearest_mantissas(in, scale[0]), nearest_mantissas(in + 8, scale[0]));
  const __m256i second = _mm256_packs_epi32(nearest_mantissas(in + 16, scale[1]), nearest_mantissas(in + 24, scale[1]));
  const __m256i packed = _mm256_max_epi8(_mm256_packs_epi16(first, second), _mm256_set1_epi8(-127));
  const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  out[0] = static_cast<std::byte>(exponent[0]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 1), _mm256_castsi256_si128(ordered));
  out[kMsfp16Bytes] = static_cast<std::byte>(exponent[1]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kMsfp16Bytes + 1), _mm256_extracti128_si256(ordered, 1));
}

// "If E = 255, e = 255 and the mantissas are 0": the rare case is mended after the blocks are written.
[[gnu::noinline]] void clear_special(const std::uint32_t* exponent, std::byte* out) {
  for (std::size_t block = 0; block < kBlocksPerGroup; ++block) {
    if (exponent[block] != kExponentSpecial) continue;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + block * kMsfp16Bytes + 1), _mm_setzero_si128());
  }
}

// Eight blocks: 128 floats to 136 bytes.
[[gnu::always_inline]] inline void encode_group(const float* in, std::byte* out) {
  const __m256i found = _mm256_srli_epi32(largest_of_rows<1, 0>(in), 24);
  const __m256i counts = _mm256_cmpgt_epi32(found, _mm256_set1_epi32(6));
  const __m256i special = _mm256_cmpeq_epi32(found, _mm256_set1_epi32(kExponentSpecial));
  const __m256i scale_bits = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(253 + 7), found), 23);
  alignas(32) std::uint32_t exponent[kBlocksPerGroup];
  alignas(32) float scale[kBlocksPerGroup];
  _mm256_store_si256(reinterpret_cast<__m256i*>(exponent), _mm256_and_si256(found, counts));
  _mm256_store_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(scale_bits, counts)));
  for (std::size_t block = 0; block < kBlocksPerGroup; block += 2) {
    encode_two(in + block * kBlock, scale + block, exponent + block, out + block * kMsfp16Bytes);
  }
  if (_mm256_movemask_epi8(special) != 0) [[unlikely]]
    clear_special(exponent, out);
}

void msfp16_encode(const float* in, std::size_t count, std::byte* out) {
  constexpr std::size_t kGroup = kBlocksPerGroup * kBlock;
  for (; count >= kGroup; count -= kGroup, in += kGroup, out += kBlocksPerGroup * kMsfp16Bytes) encode_group(in, out);
  encode_any_shape({16, 7}, in, count, out, Nearest{});
}

// Eight elements of a block, the first or the last.
[[gnu::always_inline]] inline __m256 decode_half(const std::byte* block, std::size_t half) {
  const auto* mantissas = reinterpret_cast<const __m128i*>(block + 1 + half * kLanes);
  const __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(mantissas)));
  const float scale = kDecodeScale[7][static_cast<std::uint8_t>(*block)];
  return _mm256_fmadd_ps(q, _mm256_set1_ps(scale), _mm256_setzero_ps());
}

[[gnu::always_inline]] inline __m256 decode_at(const std::byte* in, std::size_t element) {
  return decode_half(in + element / kBlock * kMsfp16Bytes, element / kLanes % 2);
}

// take(element, lanes, values) for eight elements in turn.
template <class Take>
[[gnu::always_inline]] inline void for_decoded(const std::byte* in, std::size_t count, const Take& take) {
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock, in += kMsfp16Bytes) {
    take(i, kLanes, decode_half(in, 0));
    take(i + kLanes, kLanes, decode_half(in, 1));
  }
  for_lanes(count - i, [=](std::size_t j, std::size_t lanes) { take(i + j, lanes, decode_at(in, j)); });
}

void msfp16_decode(const std::byte* in, std::size_t count, float* out) {
  const bool is_large = count * sizeof(float) >= kStreamingBytes;
  if (!is_large || reinterpret_cast<std::uintptr_t>(out) % sizeof(__m256) != 0) {
    return for_decoded(
        in, count, [=](std::size_t i, std::size_t lanes, __m256 decoded) { store_floats(out + i, lanes, decoded); });
  }
  // Past the caches: a store that goes to memory by itself does not first read the line it overwrites.
  for_decoded(in, count, [=](std::size_t i, std::size_t lanes, __m256 decoded) {
    if (lanes == kLanes) return _mm256_stream_ps(out + i, decoded);
    store_floats(out + i, lanes, decoded);
  });
  _mm_sfence();
}

void msfp16_decode_add(const std::byte* in, std::size_t count, float* sum) {
  for_decoded(in, count, [=](std::size_t i, std::size_t lanes, __m256 decoded) {
    store_floats(sum + i, lanes, _mm256_add_ps(load_floats(sum + i, lanes), decoded));
  });
}

void msfp16_fold(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  fold_floats(payloads, first, count, out,
              [](const std::byte* payload, std::size_t i, std::size_t) { return Floats{decode_at(payload, i)}; });
}

}  // namespace

}  // namespace netfold::numbers

// bfp<16, 7>, the hot shape: a block is one vector of floats and 17 bytes on the wire. Only avx512.cc includes this.
#pragma once

#include <immintrin.h>

#include "numbers/avx512_fold.h"
#include "numbers/bfp.h"

namespace netfold::numbers {

namespace {

constexpr std::size_t kMsfp16Bytes = 17;
constexpr std::size_t kBlocksPerGroup = 16;  // encoded together, so that their exponents fill one vector

// Byte k of each lane: the exponent field of block k's element in that lane, for four blocks.
[[gnu::always_inline]] inline __m512i exponent_fields(const float* in) {
  constexpr int kSelect = 0xca;  // a ? b : c
  const __m512i b0 = _mm512_srli_epi32(_mm512_loadu_si512(in), 23);
  const __m512i b1 = _mm512_srli_epi32(_mm512_loadu_si512(in + kLanes), 15);
  const __m512i b2 = _mm512_srli_epi32(_mm512_loadu_si512(in + 2 * kLanes), 7);
  const __m512i b3 = _mm512_slli_epi32(_mm512_loadu_si512(in + 3 * kLanes), 1);
  const __m512i low = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xff), b0, b1, kSelect);
  const __m512i high = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xff0000), b2, b3, kSelect);
  return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xffff), low, high, kSelect);
}

// The largest exponent of each of sixteen blocks; that of block 4 k + j is byte j of the four words of quarter k. Two
// vectors become one by gathering half the quarters of both twice and keeping the larger of the two; then the words of
// a quarter are merged.
[[gnu::always_inline]] inline __m512i largest_exponents(const float* in) {
  const __m512i q0 = exponent_fields(in);
  const __m512i q1 = exponent_fields(in + 4 * kLanes);
  const __m512i q2 = exponent_fields(in + 8 * kLanes);
  const __m512i q3 = exponent_fields(in + 12 * kLanes);
  const __m512i q02 = _mm512_max_epu8(_mm512_mask_blend_epi64(0xf0, q0, q2), _mm512_shuffle_i64x2(q0, q2, 0x4e));
  const __m512i q13 = _mm512_max_epu8(_mm512_mask_blend_epi64(0xf0, q1, q3), _mm512_shuffle_i64x2(q1, q3, 0x4e));
  const __m512i other_quarters = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
  const __m512i quarters =
      _mm512_max_epu8(_mm512_mask_blend_epi64(0xcc, q02, q13), _mm512_permutex2var_epi64(q02, other_quarters, q13));
  const __m512i halves = _mm512_max_epu8(quarters, _mm512_shuffle_epi32(quarters, _MM_PERM_BADC));
  return _mm512_max_epu8(halves, _mm512_shuffle_epi32(halves, _MM_PERM_CDAB));
}

// Where the bytes of four blocks' wire form come from: 64 mantissas as vpack leaves them (4-byte word w of block j at
// word 4 w + j), then the exponents as largest_exponents leaves them. Of 68 bytes these are the first 64.
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
          static_cast<std::uint8_t>(within == 0 ? 64 + quad * 16 + block : (element / 4 * 4 + block) * 4 + element % 4);
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

// 2^(127 - E + 6) of each block. Where E < 7 the exponent given is 0 and the scale is no power of 2^(127 - E + 6) but
// so small (-2^-123) that every mantissa is 0, as it must be.
[[gnu::always_inline]] inline void store_scales(__m512i exponents, float (&scale)[kBlocksPerGroup]) {
  const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi32(~0xff, ~0xff | 1, ~0xff | 2, ~0xff | 3));
  const __m512i exponent = _mm512_shuffle_epi8(exponents, spread);  // a byte becomes a word of its own
  _mm512_store_si512(scale, _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(253 + 7), exponent), 23));
  asm("" : "+m"(scale));  // each is then loaded into all lanes at once; left alone, GCC extracts them with shuffles
}

// Sixteen blocks: 256 floats to 272 bytes, wrong where a block holds an Inf or a NaN. Returns the exponents.
[[gnu::always_inline]] inline __m512i encode_group(const float* in, std::byte* out) {
  const __m512i largest = largest_exponents(in);
  const __m512i exponents = _mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(largest, _mm512_set1_epi8(7)), largest);
  alignas(64) float scale[kBlocksPerGroup];
  store_scales(exponents, scale);
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
    _mm512_storeu_si512(quad_out, _mm512_permutex2var_epi8(mantissas, order, exponents));
  }
  return exponents;
}

// "If E = 255, e = 255 and the mantissas are 0": rare, so mended a run of groups at a time.
[[gnu::noinline]] void clear_special(std::byte* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, out += kMsfp16Bytes) {
    if (*out == std::byte{255}) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 1), _mm_setzero_si128());
  }
}

[[gnu::always_inline]] inline void encode_groups(const float* in, std::size_t groups, std::byte* out) {
  __m512i largest = _mm512_setzero_si512();
  for (std::size_t group = 0; group < groups; ++group) {
    const __m512i exponents =
        encode_group(in + group * kBlocksPerGroup * kLanes, out + group * kBlocksPerGroup * kMsfp16Bytes);
    largest = _mm512_max_epu8(largest, exponents);
  }
  if (_mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(-1)) != 0) [[unlikely]] {
    clear_special(out, groups * kBlocksPerGroup);
  }
}

// Past the caches, for large tensors. 64 blocks are 17 whole lines; they are made in a small buffer, at the place in a
// line where `out` starts, and written line by line with stores that do not first read what they overwrite. What is
// left of a line at the end begins the next buffer. Returns how many floats were encoded.
std::size_t encode_streaming(const float* in, std::size_t count, std::byte* out) {
  constexpr std::size_t kGroups = 4;
  constexpr std::size_t kFloats = kGroups * kBlocksPerGroup * kLanes;
  constexpr std::size_t kBytes = kGroups * kBlocksPerGroup * kMsfp16Bytes;
  static_assert(kBytes % kLineBytes == 0);
  alignas(kLineBytes) std::byte lines[kBytes + kLineBytes];
  const std::size_t within = reinterpret_cast<std::uintptr_t>(out) % kLineBytes;
  std::byte* line = out - within;
  std::size_t done = 0;
  for (; done + kFloats <= count; done += kFloats, line += kBytes) {
    encode_groups(in + done, kGroups, lines + within);
    const __m512i first = _mm512_load_si512(lines);
    if (done == 0) {  // the first line's first bytes are somebody else's
      _mm512_mask_storeu_epi8(line, ~__mmask64{0} << within, first);
    } else {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(line), first);
    }
    for (std::size_t at = kLineBytes; at < kBytes; at += kLineBytes) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(line + at), _mm512_load_si512(lines + at));
    }
    _mm512_store_si512(lines, _mm512_load_si512(lines + kBytes));
  }
  if (done > 0) _mm512_mask_storeu_epi8(line, (__mmask64{1} << within) - 1, _mm512_load_si512(lines));
  _mm_sfence();
  return done;
}

void msfp16_encode(const float* in, std::size_t count, std::byte* out) {
  if (count * sizeof(float) >= kStreamingBytes) {
    const std::size_t streamed = encode_streaming(in, count, out);
    in += streamed;
    out += streamed / kLanes * kMsfp16Bytes;
    count -= streamed;
  }
  constexpr std::size_t kGroup = kBlocksPerGroup * kLanes;
  constexpr std::size_t kGroupBytes = kBlocksPerGroup * kMsfp16Bytes;
  constexpr std::size_t kRun = 32;  // groups: few enough that they are still in L1 if they must be mended
  while (count >= kGroup) {
    const std::size_t groups = count / kGroup < kRun ? count / kGroup : kRun;
    encode_groups(in, groups, out);
    in += groups * kGroup;
    out += groups * kGroupBytes;
    count -= groups * kGroup;
  }
  if (count == 0) return;
  // The last few blocks: as a whole group that is padded with zeros.
  alignas(64) float padded[kGroup];
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    const __mmask16 lanes = i < count ? first_lanes(count - i) : __mmask16{0};
    _mm512_store_ps(padded + i, _mm512_maskz_loadu_ps(lanes, in + i));
  }
  std::byte group[kGroupBytes];
  encode_groups(padded, 1, group);
  __builtin_memcpy(out, group, (count + kLanes - 1) / kLanes * kMsfp16Bytes);
}

// fma with +0 gives q * scale, which is exact, and turns -0 (from e = 0) into +0.
[[gnu::always_inline]] inline __m512 decode_block(const std::byte* block) {
  const __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 1)));
  const float scale = kDecodeScale[7][static_cast<std::uint8_t>(*block)];
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(q), _mm512_set1_ps(scale), _mm512_setzero_ps());
}

// Past the caches: a store that goes to memory by itself does not first read the line it overwrites.
void msfp16_decode_streaming(const std::byte* in, std::size_t count, float* out) {
  for (; count >= kLanes; count -= kLanes, in += kMsfp16Bytes, out += kLanes) _mm512_stream_ps(out, decode_block(in));
  if (count > 0) _mm512_mask_storeu_ps(out, first_lanes(count), decode_block(in));
  _mm_sfence();
}

void msfp16_decode(const std::byte* in, std::size_t count, float* out) {
  if (count * sizeof(float) >= kStreamingBytes && reinterpret_cast<std::uintptr_t>(out) % kLineBytes == 0) {
    return msfp16_decode_streaming(in, count, out);
  }
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

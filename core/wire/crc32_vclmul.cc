// CRC-32 by carry-less multiplication: four registers of 512 bits.
#include "wire/crc32.h"

#if defined(__VPCLMULQDQ__) && defined(__AVX512F__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC's own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "wire/crc32_folding.h"

namespace netfold::wire {
namespace {

constexpr std::size_t kWideBytes = 64, kFoldBytes = 4 * kWideBytes;

__m512i load_wide(const std::byte* from) {
  return _mm512_loadu_si512(from);
}

__m512i fold_wide(__m512i folded, __m512i by, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(folded, by, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(folded, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // exclusive or of all three
}

std::uint32_t compute(std::span<const std::byte> bytes, std::uint32_t before) {
  static const Crc32& shorter = *crc32_clmul();
  if (bytes.size() < kFoldBytes) return shorter.compute(bytes, before);
  __m512i x[4];
  for (std::size_t i = 0; i < 4; ++i) x[i] = load_wide(bytes.data() + i * kWideBytes);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~before))));
  const __m512i by_2048 = _mm512_broadcast_i32x4(factors<4 * 512>());
  for (bytes = bytes.subspan(kFoldBytes); bytes.size() >= kFoldBytes; bytes = bytes.subspan(kFoldBytes)) {
    for (std::size_t i = 0; i < 4; ++i) x[i] = fold_wide(x[i], by_2048, load_wide(bytes.data() + i * kWideBytes));
  }
  const __m512i by_512 = _mm512_broadcast_i32x4(factors<512>());
  __m512i folded = fold_wide(fold_wide(fold_wide(x[0], by_512, x[1]), by_512, x[2]), by_512, x[3]);
  for (; bytes.size() >= kWideBytes; bytes = bytes.subspan(kWideBytes)) {
    folded = fold_wide(folded, by_512, load_wide(bytes.data()));
  }
  const __m128i by_128 = factors<128>();
  __m128i last = _mm512_castsi512_si128(folded);
  last = fold(last, by_128, _mm512_extracti32x4_epi32(folded, 1));
  last = fold(last, by_128, _mm512_extracti32x4_epi32(folded, 2));
  last = fold(last, by_128, _mm512_extracti32x4_epi32(folded, 3));
  return finish(last, bytes, *crc32_by_eight());
}

bool is_supported() {
  return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") && crc32_clmul() != nullptr &&
         crc32_clmul()->is_supported();
}

constexpr Crc32 kVclmul{"vclmul", is_supported, compute};

}  // namespace

const Crc32* crc32_vclmul() {
  return &kVclmul;
}

}  // namespace netfold::wire

#else

namespace netfold::wire {

const Crc32* crc32_vclmul() {
  return nullptr;
}

}  // namespace netfold::wire

#endif

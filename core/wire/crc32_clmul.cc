// CRC-32 by carry-less multiplication. A message is a polynomial over GF(2), and only its remainder matters: four
// registers of 128 bits fold each next 64 bytes in, the four fold into one, and the CRC of what is left is the
// message's.
//
// Folding a register over D bits multiplies its two halves by x^(D+32) and x^(D-32) modulo the polynomial. With bits
// reflected, a product of two 64-bit halves comes out one bit low, which the factors' shift by one makes good.
// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
#include "wire/crc32.h"

#if defined(__PCLMUL__)
#include <immintrin.h>

#include <array>

namespace netfold::wire {
namespace {

constexpr std::size_t kRegisterBytes = 16, kFoldBytes = 64;

// x^n modulo the polynomial, bits reflected, shifted left by one.
constexpr std::int64_t power(int n) {
  std::uint32_t remainder = 0x80000000;  // x^0
  for (int i = 0; i < n; ++i) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0xedb88320 : 0);
  return static_cast<std::int64_t>(std::uint64_t{remainder} << 1);
}

constexpr std::int64_t kBy512[] = {power(512 - 32), power(512 + 32)};
constexpr std::int64_t kBy128[] = {power(128 - 32), power(128 + 32)};

__m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

__m128i fold(__m128i folded, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(folded, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(folded, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

std::uint32_t compute(std::span<const std::byte> bytes, std::uint32_t before) {
  static const Crc32& rest = all_crc32()[1];  // whatever this leaves: the next way in the list
  if (bytes.size() < kFoldBytes) return rest.compute(bytes, before);

  const __m128i by_512 = _mm_set_epi64x(kBy512[0], kBy512[1]);
  const __m128i by_128 = _mm_set_epi64x(kBy128[0], kBy128[1]);
  __m128i x[4];
  for (std::size_t i = 0; i < 4; ++i) x[i] = load(bytes.data() + i * kRegisterBytes);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(~before)));
  for (bytes = bytes.subspan(kFoldBytes); bytes.size() >= kFoldBytes; bytes = bytes.subspan(kFoldBytes)) {
    for (std::size_t i = 0; i < 4; ++i) x[i] = fold(x[i], by_512, load(bytes.data() + i * kRegisterBytes));
  }
  __m128i folded = fold(fold(fold(x[0], by_128, x[1]), by_128, x[2]), by_128, x[3]);
  for (; bytes.size() >= kRegisterBytes; bytes = bytes.subspan(kRegisterBytes)) {
    folded = fold(folded, by_128, load(bytes.data()));
  }
  std::array<std::byte, kRegisterBytes> left;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(left.data()), folded);
  constexpr std::uint32_t kNoBitsBefore = 0xffffffff;  // the first four bytes hold that already
  return rest.compute(bytes, rest.compute(left, kNoBitsBefore));
}

bool is_supported() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

constexpr Crc32 kClmul{"clmul", is_supported, compute};

}  // namespace

const Crc32* crc32_clmul() {
  return &kClmul;
}

}  // namespace netfold::wire

#else

namespace netfold::wire {

const Crc32* crc32_clmul() {
  return nullptr;
}

}  // namespace netfold::wire

#endif

// What the carry-less ways to compute a CRC-32 have in common. A message is a polynomial over GF(2), and only its
// remainder matters: registers fold each next bytes in, and the CRC of the 128 bits that are left is the message's.
//
// Folding a register over D bits multiplies its two halves by x^(D+32) and x^(D-32) modulo the polynomial. With bits
// reflected, a product of two 64-bit halves comes out one bit low, which the factors' shift by one makes good.
// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
//
// Included by files that are compiled for one instruction set each: all of it in an unnamed namespace, so that no other
// file can pick up their code.
#pragma once

#include <immintrin.h>

#include "wire/crc32.h"

namespace netfold::wire {
namespace {

constexpr std::size_t kRegisterBytes = 16;

// x^n modulo the polynomial, bits reflected, shifted left by one.
constexpr std::int64_t power(int n) {
  std::uint32_t remainder = 0x80000000;  // x^0
  for (int i = 0; i < n; ++i) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0xedb88320 : 0);
  return static_cast<std::int64_t>(std::uint64_t{remainder} << 1);
}

// Factors of a fold over kBits.
template <int kBits>
__m128i factors() {
  constexpr std::int64_t kHigh = power(kBits - 32), kLow = power(kBits + 32);
  return _mm_set_epi64x(kHigh, kLow);
}

__m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

__m128i fold(__m128i folded, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(folded, by, 0x00);
  const __m128i high = _mm_clmulepi64_si128(folded, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// What is left of 128 bits: 64 after two more multiplications, then Barrett's reduction, whose quotient is that of x^64
// by the polynomial.
std::uint32_t reduce(__m128i folded) {
  constexpr std::int64_t kWholePolynomial = 0x1db710641, kQuotient = 0x1f7011641;  // reflected, 33 bits
  const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
  const __m128i barrett = _mm_set_epi64x(kQuotient, kWholePolynomial);
  const __m128i upper = _mm_xor_si128(_mm_srli_si128(folded, 8), _mm_clmulepi64_si128(folded, factors<128>(), 0x10));
  const __m128i by_64 = _mm_set_epi64x(0, power(64));
  const __m128i last =
      _mm_xor_si128(_mm_srli_si128(upper, 4), _mm_clmulepi64_si128(_mm_and_si128(upper, low_32), by_64, 0x00));
  const __m128i times = _mm_clmulepi64_si128(_mm_and_si128(last, low_32), barrett, 0x10);
  const __m128i product = _mm_clmulepi64_si128(_mm_and_si128(times, low_32), barrett, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(product, last), 1));
}

// The CRC of what is folded so far and `bytes` behind it; `rest` computes what is shorter than a register.
std::uint32_t finish(__m128i folded, std::span<const std::byte> bytes, const Crc32& rest) {
  for (; bytes.size() >= kRegisterBytes; bytes = bytes.subspan(kRegisterBytes)) {
    folded = fold(folded, factors<128>(), load(bytes.data()));
  }
  const std::uint32_t check = ~reduce(folded);
  return bytes.empty() ? check : rest.compute(bytes, check);
}

}  // namespace
}  // namespace netfold::wire

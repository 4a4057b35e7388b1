// The block floating point kernels share this: the exponent rules of spec section 2 as tables and small functions.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/memory_units.h"
#include "numbers/kernels.h"

namespace netfold::numbers {

inline constexpr std::uint32_t kExponentSpecial = 255;  // a block that holds an Inf or a NaN

// From this many bytes of floats on, results go past the caches: more than a core's share of them.
inline constexpr std::size_t kStreamingBytes = std::size_t{16} << 20;

// Encode multiplies by 2^(127 - E + m - 1); as a biased exponent that is 253 + m - E, normal for m <= E <= 254.
inline constexpr std::uint32_t encode_scale_exponent(std::uint32_t mantissa, std::uint32_t exponent) {
  return 253 + mantissa - exponent;
}

// kDecodeScale[m][e]: what a mantissa is multiplied by. e = 0 gives 0, e = 255 gives NaN, and so does a malformed e.
inline constexpr auto kDecodeScale = [] {
  std::array<std::array<float, 256>, 8> scale{};
  for (std::uint32_t m = 2; m <= 7; ++m) {
    for (std::uint32_t e = 1; e < 256; ++e) {
      const bool is_number = e >= m && e < kExponentSpecial;
      scale[m][e] = is_number ? std::bit_cast<float>((e - (m - 1)) << 23) : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return scale;
}();

// kIsMalformed[m][e]: 0 < e < m.
inline constexpr auto kIsMalformed = [] {
  std::array<std::array<bool, 256>, 8> is_malformed{};
  for (std::uint32_t m = 2; m <= 7; ++m) {
    for (std::uint32_t e = 1; e < m; ++e) is_malformed[m][e] = true;
  }
  return is_malformed;
}();

// The two words of a seed, spread over all bits (splitmix64), that key the draws of stochastic rounding.
struct DrawKey {
  std::uint32_t before;
  std::uint32_t between;
};

inline constexpr DrawKey draw_key(std::uint64_t seed) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return {static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(z >> 32)};
}

inline constexpr std::uint32_t kDrawMultiplierFirst = 0x85ebca6b;
inline constexpr std::uint32_t kDrawMultiplierSecond = 0xc2b2ae35;

// A draw from [0, 2^16) for one element: murmur3's finalizer over its index. A value lies between two neighbouring
// mantissas; with the part above the lower one as 16 bits, adding the draw and dropping 16 bits rounds up with exactly
// that probability, and leaves a value that is a mantissa already as it is.
inline constexpr std::uint32_t draw(DrawKey key, std::uint32_t index) {
  std::uint32_t x = index + key.before;
  x ^= x >> 16;
  x *= kDrawMultiplierFirst;
  x ^= x >> 13;
  x += key.between;
  x *= kDrawMultiplierSecond;
  return x >> 16;
}

// Folds bfp of any shape a tile at a time with a table's own decode and add; `with` needs only those two.
void fold_bfp_by_tiles(const Kernels& with, BfpShape shape, Payloads payloads, std::size_t first, std::size_t count,
                       float* out);

}  // namespace netfold::numbers

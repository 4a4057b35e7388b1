// The specification: plain loops, one element at a time, spec section 2 and 3 to the letter. Every other table is
// tested against this one. Values are read and written through memcpy because pointers may be unaligned.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "numbers/bfp.h"
#include "numbers/tables.h"

namespace netfold::numbers {

namespace {

template <class T>
T load(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(void* to, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(to) + index * sizeof(T), &value, sizeof(T));
}

// --- Section 2: block floating point ---------------------------------------------------------------------------------

// "E = the largest biased exponent field (bits 30..23) of the block."
std::uint32_t largest_exponent(const float* in, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, load<std::uint32_t>(in, i) >> 23 & 0xff);
  return largest;
}

// "packed least significant bit first"; bits are ORed in, so the block starts as zeros, which is also its padding.
void put_mantissa(std::byte* mantissas, std::size_t index, unsigned width_bits, std::int32_t q) {
  const auto bits = static_cast<std::uint32_t>(q) & ((1u << width_bits) - 1);
  for (unsigned i = 0; i < width_bits; ++i) {
    const std::size_t position = index * width_bits + i;
    mantissas[position / 8] |= static_cast<std::byte>((bits >> i & 1) << position % 8);
  }
}

// "two's complement of m+1 bits"
std::int32_t get_mantissa(const std::byte* mantissas, std::size_t index, unsigned width_bits) {
  std::uint32_t bits = 0;
  for (unsigned i = 0; i < width_bits; ++i) {
    const std::size_t position = index * width_bits + i;
    bits |= (static_cast<std::uint32_t>(mantissas[position / 8]) >> position % 8 & 1) << i;
  }
  return static_cast<std::int32_t>(bits << (32 - width_bits)) >> (32 - width_bits);
}

// One block of up to `shape.block` elements; quantise(x * scale, i) is the mantissa before it is clamped.
template <class Quantise>
void encode_block(BfpShape shape, const float* in, std::size_t count, std::byte* out, Quantise quantise) {
  const std::uint32_t m = shape.mantissa;
  const std::uint32_t exponent = largest_exponent(in, count);
  std::memset(out, 0, bfp_block_bytes(shape));
  if (exponent == kExponentSpecial) {  // "If E = 255 (an Inf or a NaN), e = 255 and the mantissas are 0."
    out[0] = std::byte{255};
    return;
  }
  if (exponent < m) return;  // "If E < m, e = 0 and the mantissas are 0."
  out[0] = static_cast<std::byte>(exponent);
  const auto scale = std::bit_cast<float>(encode_scale_exponent(m, exponent) << 23);
  const std::int32_t limit = (1 << m) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t q = quantise(load<float>(in, i) * scale, i);
    put_mantissa(out + 1, i, m + 1, std::clamp(q, -limit, limit));  // "then clamped to +-(2^m - 1)"
  }
}

void bfp_encode(BfpShape shape, const float* in, std::size_t count, std::byte* out) {
  // "round to nearest, ties to even": the default rounding mode.
  const auto nearest = [](float scaled, std::size_t) { return static_cast<std::int32_t>(std::nearbyint(scaled)); };
  for (std::size_t done = 0; done < count; done += shape.block, out += bfp_block_bytes(shape)) {
    encode_block(shape, in + done, std::min<std::size_t>(shape.block, count - done), out, nearest);
  }
}

void bfp_encode_stochastic(BfpShape shape, const float* in, std::size_t count, RoundingSeed seed, std::byte* out) {
  const DrawKey key = draw_key(seed.seed);
  for (std::size_t done = 0; done < count; done += shape.block, out += bfp_block_bytes(shape)) {
    const auto drawn = [&](float scaled, std::size_t i) {
      const auto fixed_point = static_cast<std::int32_t>(std::nearbyint(scaled * 65536.0f));
      const auto index = seed.first_index + static_cast<std::uint32_t>(done + i);
      return (fixed_point + static_cast<std::int32_t>(draw(key, index))) >> 16;
    };
    encode_block(shape, in + done, std::min<std::size_t>(shape.block, count - done), out, drawn);
  }
}

float decode_element(BfpShape shape, const std::byte* in, std::size_t index) {
  const std::byte* block = in + index / shape.block * bfp_block_bytes(shape);
  const auto exponent = static_cast<std::uint8_t>(block[0]);
  if (exponent == 0) return 0.0f;  // "e = 0 gives +0", whatever the mantissas are
  const std::int32_t q = get_mantissa(block + 1, index % shape.block, shape.mantissa + 1u);
  return static_cast<float>(q) * kDecodeScale[shape.mantissa][exponent];
}

void bfp_decode(BfpShape shape, const std::byte* in, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, decode_element(shape, in, i));
}

void bfp_decode_add(BfpShape shape, const std::byte* in, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; ++i) store(sum, i, load<float>(sum, i) + decode_element(shape, in, i));
}

// "A received e with 0 < e < m is malformed."
bool bfp_is_well_formed(BfpShape shape, const std::byte* in, std::size_t count) {
  for (std::size_t done = 0; done < count; done += shape.block, in += bfp_block_bytes(shape)) {
    const auto exponent = static_cast<std::uint8_t>(in[0]);
    if (exponent > 0 && exponent < shape.mantissa) return false;
  }
  return true;
}

// --- Plain formats ---------------------------------------------------------------------------------------------------

float fp16_widened(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: a whole number of 2^-24, exact in FP32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {  // Inf, or NaN made quiet
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction != 0 ? 0x400000u : 0u) | fraction << 13);
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

std::uint16_t fp16_rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN stays NaN: its payload may be lost, its quiet bit never
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 65536 and above, Inf
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // normal in fp16; a carry out of the fraction raises the exponent, up to Inf
    half = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
  } else {  // a whole number of 2^-24
    half = static_cast<std::uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f));
  }
  return static_cast<std::uint16_t>(sign | half);
}

float bf16_widened(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

std::uint16_t bf16_rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void fp16_to_fp32(const std::uint16_t* in, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, fp16_widened(load<std::uint16_t>(in, i)));
}

void fp32_to_fp16(const float* in, std::size_t count, std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, fp16_rounded(load<float>(in, i)));
}

void bf16_to_fp32(const std::uint16_t* in, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, bf16_widened(load<std::uint16_t>(in, i)));
}

void fp32_to_bf16(const float* in, std::size_t count, std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, bf16_rounded(load<float>(in, i)));
}

void add_fp32(const float* a, const float* b, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, load<float>(a, i) + load<float>(b, i));
}

void add_int32(const std::int32_t* a, const std::int32_t* b, std::size_t count, std::int32_t* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, load<std::uint32_t>(a, i) + load<std::uint32_t>(b, i));
}

void divide_fp32(const float* in, float divisor, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) store(out, i, load<float>(in, i) / divisor);
}

// --- Section 3: the order of a fold ----------------------------------------------------------------------------------

// "fold(lo, hi) = x_lo if one; else fold(lo, lo+p) + fold(lo+p, hi), p = the largest power of two below the number of
// workers." Unsigned integers wrap, which is what int32 does on the wire.
template <class Leaf>
auto fold_ranks(std::size_t lo, std::size_t hi, const Leaf& leaf) -> decltype(leaf(lo)) {
  if (hi - lo == 1) return leaf(lo);
  const std::size_t p = std::bit_floor(hi - lo - 1);
  return fold_ranks(lo, lo + p, leaf) + fold_ranks(lo + p, hi, leaf);
}

void fold_fp32(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto leaf = [&](std::size_t rank) { return load<float>(payloads[rank], first + i); };
    store(out, i, fold_ranks(0, payloads.size(), leaf));
  }
}

void fold_fp16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto leaf = [&](std::size_t rank) { return fp16_widened(load<std::uint16_t>(payloads[rank], first + i)); };
    store(out, i, fold_ranks(0, payloads.size(), leaf));
  }
}

void fold_bf16(Payloads payloads, std::size_t first, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto leaf = [&](std::size_t rank) { return bf16_widened(load<std::uint16_t>(payloads[rank], first + i)); };
    store(out, i, fold_ranks(0, payloads.size(), leaf));
  }
}

void fold_bfp(BfpShape shape, Payloads payloads, std::size_t first, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto leaf = [&](std::size_t rank) { return decode_element(shape, payloads[rank], first + i); };
    store(out, i, fold_ranks(0, payloads.size(), leaf));
  }
}

void fold_int32(Payloads payloads, std::size_t first, std::size_t count, std::int32_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto leaf = [&](std::size_t rank) { return load<std::uint32_t>(payloads[rank], first + i); };
    store(out, i, fold_ranks(0, payloads.size(), leaf));
  }
}

constexpr Kernels kReference{
    .name = "reference",
    .is_supported = [] { return true; },
    .bfp_encode = bfp_encode,
    .bfp_encode_stochastic = bfp_encode_stochastic,
    .bfp_decode = bfp_decode,
    .bfp_decode_add = bfp_decode_add,
    .bfp_is_well_formed = bfp_is_well_formed,
    .add_fp32 = add_fp32,
    .add_int32 = add_int32,
    .divide_fp32 = divide_fp32,
    .fp16_to_fp32 = fp16_to_fp32,
    .fp32_to_fp16 = fp32_to_fp16,
    .bf16_to_fp32 = bf16_to_fp32,
    .fp32_to_bf16 = fp32_to_bf16,
    .fold_fp32 = fold_fp32,
    .fold_fp16 = fold_fp16,
    .fold_bf16 = fold_bf16,
    .fold_bfp = fold_bfp,
    .fold_int32 = fold_int32,
};

}  // namespace

const Kernels* reference_kernels() {
  return &kReference;
}

}  // namespace netfold::numbers

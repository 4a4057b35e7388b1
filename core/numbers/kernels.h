// The inner loops, one table per instruction set. reference.cc is the specification: plain loops over spec text; every
// other table gives the same bits (tests/fuzz), except that one NaN may stand for another. Pointers may be unaligned;
// `out` may equal an input where types match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numbers/format.h"

namespace netfold::numbers {

// One payload per rank. A fold kernel sums elements [first, first + count) of each; `first` is a multiple of the block
// for bfp.
using Payloads = std::span<const std::byte* const>;
inline constexpr std::size_t kWorkersMax = 1 << 16;

// The source of stochastic rounding: the same seed and element index (modulo 2^32) give the same choice, so a chunk
// that is encoded again for a retransmission has the same bytes.
struct RoundingSeed {
  std::uint64_t seed;
  std::uint32_t first_index;  // of in[0]
};

struct Kernels {
  const char* name;        // "avx512", "avx2", "neon", "reference"
  bool (*is_supported)();  // by this processor

  void (*bfp_encode)(BfpShape shape, const float* in, std::size_t count, std::byte* out);
  void (*bfp_encode_stochastic)(BfpShape shape, const float* in, std::size_t count, RoundingSeed seed, std::byte* out);
  // A malformed exponent decodes as NaN, so that it never passes for a number.
  void (*bfp_decode)(BfpShape shape, const std::byte* in, std::size_t count, float* out);
  void (*bfp_decode_add)(BfpShape shape, const std::byte* in, std::size_t count, float* sum);  // sum = sum + decoded
  // False if a block's exponent is malformed: 0 < e < mantissa.
  bool (*bfp_is_well_formed)(BfpShape shape, const std::byte* in, std::size_t count);

  void (*add_fp32)(const float* a, const float* b, std::size_t count, float* out);
  void (*add_int32)(const std::int32_t* a, const std::int32_t* b, std::size_t count, std::int32_t* out);  // wraps
  void (*divide_fp32)(const float* in, float divisor, std::size_t count, float* out);

  void (*fp16_to_fp32)(const std::uint16_t* in, std::size_t count, float* out);
  void (*fp32_to_fp16)(const float* in, std::size_t count, std::uint16_t* out);  // nearest even; NaN stays NaN
  void (*bf16_to_fp32)(const std::uint16_t* in, std::size_t count, float* out);
  void (*fp32_to_bf16)(const float* in, std::size_t count, std::uint16_t* out);  // nearest even; NaN stays NaN

  // Folds in the order of fold.h; floating-point formats into fp32, not yet rounded to the wire.
  void (*fold_fp32)(Payloads payloads, std::size_t first, std::size_t count, float* out);
  void (*fold_fp16)(Payloads payloads, std::size_t first, std::size_t count, float* out);
  void (*fold_bf16)(Payloads payloads, std::size_t first, std::size_t count, float* out);
  void (*fold_bfp)(BfpShape shape, Payloads payloads, std::size_t first, std::size_t count, float* out);
  void (*fold_int32)(Payloads payloads, std::size_t first, std::size_t count, std::int32_t* out);
};

// Fastest first; reference is last and always supported. Tables that this build's target cannot have are absent.
std::span<const Kernels* const> all_kernels();

// The fastest supported table, or the one that NETFOLD_KERNELS names (chosen once; a wrong name is reported and the
// fastest is taken).
const Kernels& kernels();

}  // namespace netfold::numbers

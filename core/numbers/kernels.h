// The inner loops, one table per instruction set. reference.cc is the specification: plain loops over spec text; every
// other table gives the same bits (tests/fuzz). Pointers may be unaligned; `out` may equal an input where types match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numbers/format.h"

namespace netfold::numbers {

struct Kernels {
  const char* name;       // "reference", "avx2", "avx512"
  bool (*is_supported)(); // by this processor

  void (*bfp_encode)(BfpShape shape, const float* in, std::size_t count, std::byte* out);
  void (*bfp_decode)(BfpShape shape, const std::byte* in, std::size_t count, float* out);
  // False if a block's exponent is malformed: 0 < e < mantissa.
  bool (*bfp_is_well_formed)(BfpShape shape, const std::byte* in, std::size_t count);

  void (*add_fp32)(const float* a, const float* b, std::size_t count, float* out);
  void (*add_int32)(const std::int32_t* a, const std::int32_t* b, std::size_t count, std::int32_t* out);  // wraps

  void (*fp16_to_fp32)(const std::uint16_t* in, std::size_t count, float* out);
  void (*fp32_to_fp16)(const float* in, std::size_t count, std::uint16_t* out);  // nearest even; NaN stays NaN
  void (*bf16_to_fp32)(const std::uint16_t* in, std::size_t count, float* out);
  void (*fp32_to_bf16)(const float* in, std::size_t count, std::uint16_t* out);  // nearest even; NaN stays NaN
};

// Fastest first; reference is last and always supported.
std::span<const Kernels* const> all_kernels();

// The fastest supported table, or the one that NETFOLD_KERNELS names (chosen once; a wrong name is reported and the
// fastest is taken).
const Kernels& kernels();

}  // namespace netfold::numbers

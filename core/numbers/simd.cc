// Every table but the reference: one source in Highway's operations, compiled once for each instruction set. The hot
// shape, bfp<16, 7>, has code of its own in simd_msfp16.inc; other shapes share simd_bfp.inc.
//
// Of Highway only headers are used, so nothing is linked: this file says itself what a processor can run.
#define HWY_TARGET_INCLUDE "numbers/simd.cc"
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3 | HWY_NEON))
#define HWY_IS_DEBUG_BUILD 0  // its checks are in the library
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // first: it includes this file again for all targets but the last
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "numbers/bfp.h"
#include "numbers/tables.h"

// Highway compiles this file for a target without vectors too, because a build for any processor needs one. No code
// calls that target, so it is empty.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
#include "numbers/simd_plain.inc"
//
#include "numbers/simd_fold.inc"
//
#include "numbers/simd_bfp.inc"
//
#include "numbers/simd_msfp16.inc"

namespace netfold::numbers {

namespace HWY_NAMESPACE {

bool is_msfp16(BfpShape shape) {
  return shape.block == 16 && shape.mantissa == 7;
}

void bfp_encode(BfpShape shape, const float* in, std::size_t count, std::byte* out) {
  if (is_msfp16(shape)) return msfp16_encode(in, count, out);
  encode_any_shape(shape, in, count, out, Nearest{});
}

void bfp_encode_stochastic(BfpShape shape, const float* in, std::size_t count, RoundingSeed seed, std::byte* out) {
  encode_any_shape(shape, in, count, out, Drawn(seed));
}

void bfp_decode(BfpShape shape, const std::byte* in, std::size_t count, float* out) {
  if (is_msfp16(shape)) return msfp16_decode(in, count, out);
  decode_any_shape<false>(shape, in, count, out);
}

void bfp_decode_add(BfpShape shape, const std::byte* in, std::size_t count, float* sum) {
  if (is_msfp16(shape)) return msfp16_decode_add(in, count, sum);
  decode_any_shape<true>(shape, in, count, sum);
}

// Every processor that has these has F16C too, which not every compiler can ask for.
bool is_supported() {
#if HWY_TARGET == HWY_AVX3
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return false;
  }
#endif
#if HWY_ARCH_X86
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

extern const Kernels kKernels;

void fold_bfp(BfpShape shape, Payloads payloads, std::size_t first, std::size_t count, float* out) {
  if (is_msfp16(shape)) return msfp16_fold(payloads, first, count, out);
  fold_bfp_by_tiles(kKernels, shape, payloads, first, count, out);
}

const Kernels kKernels{
    .name = HWY_TARGET == HWY_AVX3   ? "avx512"
            : HWY_TARGET == HWY_AVX2 ? "avx2"
                                     : "neon",
    .is_supported = is_supported,
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

}  // namespace HWY_NAMESPACE

}  // namespace netfold::numbers

HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE

namespace netfold::numbers {

std::vector<const Kernels*> simd_kernels() {
  return {
#if HWY_TARGETS & HWY_AVX3
    &N_AVX3::kKernels,
#endif
#if HWY_TARGETS & HWY_AVX2
        &N_AVX2::kKernels,
#endif
#if HWY_TARGETS & HWY_NEON
        &N_NEON::kKernels,
#endif
  };
}

}  // namespace netfold::numbers

#endif

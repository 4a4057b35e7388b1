// AVX2 (with FMA, F16C and BMI2). The hot shape, bfp<16, 7>, has code of its own in avx2_msfp16.h; other shapes share
// avx2_bfp.h.
#include "numbers/tables.h"

#if defined(__AVX2__)

#include "numbers/avx2_msfp16.h"

namespace netfold::numbers {

namespace {

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
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
}

bool bfp_is_well_formed(BfpShape shape, const std::byte* in, std::size_t count) {
  bool is_malformed = false;
  const std::size_t stride = bfp_block_bytes(shape);
  for (std::size_t done = 0; done < count; done += shape.block, in += stride) {
    is_malformed |= static_cast<std::uint8_t>(static_cast<std::uint8_t>(*in) - 1u) < shape.mantissa - 1u;
  }
  return !is_malformed;
}

extern const Kernels kAvx2;

void fold_bfp(BfpShape shape, Payloads payloads, std::size_t first, std::size_t count, float* out) {
  if (is_msfp16(shape)) return msfp16_fold(payloads, first, count, out);
  fold_bfp_by_tiles(kAvx2, shape, payloads, first, count, out);
}

const Kernels kAvx2{
    .name = "avx2",
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

}  // namespace

const Kernels* avx2_kernels() {
  return &kAvx2;
}

}  // namespace netfold::numbers

#else

namespace netfold::numbers {
const Kernels* avx2_kernels() {
  return nullptr;
}
}  // namespace netfold::numbers

#endif

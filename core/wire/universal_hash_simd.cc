// By carry-less multiplication: one source in Highway's operations, compiled once for each instruction set, as
// numbers/simd.cc is. The way to reduce is that of S. Gueron's papers on AES-GCM-SIV.
#define HWY_TARGET_INCLUDE "wire/universal_hash_simd.cc"
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3_DL | HWY_NEON))
#define HWY_WANT_AVX3_DL 1
#define HWY_IS_DEBUG_BUILD 0     // its checks are in the library
#include <hwy/foreach_target.h>  // first: it includes this file again for all targets but the last
#include <hwy/highway.h>

#include <array>
#include <cassert>
#include <cstring>

#include "base/processor.h"
#include "wire/universal_hash.h"

// Highway compiles this file for a target without vectors too. No code calls that target, so it is empty.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();

namespace netfold::wire::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using One = hn::Full128<std::uint64_t>;  // block
using Many = hn::ScalableTag<std::uint64_t>;
using Element = hn::Vec<One>;

// The sum of all blocks of a vector.
template <class D>
HWY_INLINE Element sum_of_blocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 2) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Xor(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

HWY_INLINE Element load(const Block& from) {
  return hn::LoadU(One(), from.data());
}

HWY_INLINE Block stored(Element element) {
  Block block;
  hn::StoreU(element, One(), block.data());
  return block;
}

// In both halves of each block of the result.
template <class V>
HWY_INLINE V sum_of_halves(V blocks) {
  return hn::Xor(blocks, hn::Shuffle01(blocks));
}

// Products before they are reduced, summed: of the low halves, of the high halves, and of both halves' sums. A vector
// of several blocks has several sums.
template <class D>
struct Products {
  hn::Vec<D> low, high, middle;

  HWY_INLINE static Products none() { return {hn::Zero(D()), hn::Zero(D()), hn::Zero(D())}; }

  HWY_INLINE void add(hn::Vec<D> x, hn::Vec<D> power) {
    low = hn::Xor(low, hn::CLMulLower(x, power));
    high = hn::Xor(high, hn::CLMulUpper(x, power));
    middle = hn::Xor(middle, hn::CLMulLower(sum_of_halves(x), sum_of_halves(power)));
  }
};

HWY_INLINE Element reduced(const Products<One>& of) {
  const One d;
  const Element both = hn::Xor(hn::Xor(of.middle, of.low), of.high);
  Element lower = hn::Xor(of.low, hn::ShiftLeftBytes<8>(d, both));
  const Element upper = hn::Xor(of.high, hn::ShiftRightBytes<8>(d, both));
  const Element modulus = hn::Set(d, 0xc200000000000000);
  for (int half = 0; half < 2; ++half) lower = hn::Xor(hn::Shuffle01(lower), hn::CLMulLower(lower, modulus));
  return hn::Xor(lower, upper);
}

void prepare(const Block& key, Powers& powers) {
  const Element point = load(key);
  Element power = point;
  for (std::size_t i = kHashedBlocksMax; i-- > 0;) {
    powers[i] = stored(power);
    auto product = Products<One>::none();
    product.add(power, point);
    power = reduced(product);
  }
}

// A tensor comes from memory, and its next packet lies behind this one. Processors fetch by themselves only up to the
// end of a page of 4 KiB. An address behind the tensor does no harm.
constexpr std::size_t kPrefetchBytes = 2048;

using Blocks = hn::Vec<Many>;

HWY_INLINE Blocks product_of_halves(Blocks data, Blocks words) {
  const auto sum = hn::Xor(data, words);
  return hn::CLMulLower(sum, hn::Shuffle01(sum));
}

HWY_INLINE Blocks load(const std::byte* from) {
  return hn::LoadU(Many(), reinterpret_cast<const std::uint64_t*>(from));
}

// CLNH of a piece; the sum of the vector's blocks is its value.
HWY_INLINE Blocks clnh(const HashKey& key, const std::byte* piece, std::size_t size) {
  const Many d;
  constexpr std::size_t kVectorBytes = hn::MaxLanes(d) * sizeof(std::uint64_t), kStepBytes = 4 * kVectorBytes;
  const auto* const words = reinterpret_cast<const std::byte*>(key.words.data());
  const auto product = [&](std::size_t at) { return product_of_halves(load(piece + at), load(words + at)); };
  Blocks sum = hn::Zero(d), other = hn::Zero(d);
  std::size_t at = 0;
  for (; at + kStepBytes <= size; at += kStepBytes) {
    for (std::size_t line = at; line < at + kStepBytes; line += 64) __builtin_prefetch(piece + line + kPrefetchBytes);
    sum = hn::Xor(sum, hn::Xor(product(at), product(at + kVectorBytes)));
    other = hn::Xor(other, hn::Xor(product(at + 2 * kVectorBytes), product(at + 3 * kVectorBytes)));
  }
  for (; at + kVectorBytes <= size; at += kVectorBytes) sum = hn::Xor(sum, product(at));
  const auto add_first = [&](const std::byte* data, std::size_t lanes) {
    const auto are_there = hn::FirstN(d, lanes);
    const auto of = [&](const std::byte* from) {
      return hn::MaskedLoad(are_there, d, reinterpret_cast<const std::uint64_t*>(from));
    };
    sum = hn::Xor(sum, product_of_halves(of(data), of(words + at)));
  };
  if (const std::size_t whole = (size - at) / kBlockBytes; whole > 0) {
    add_first(piece + at, 2 * whole);
    at += whole * kBlockBytes;
  }
  if (at < size) {
    alignas(kVectorBytes) std::array<std::byte, kVectorBytes> last{};
    std::memcpy(last.data(), piece + at, size - at);
    add_first(last.data(), 2);
  }
  return hn::Xor(sum, other);
}

// POLYVAL is linear, so the blocks of a vector are added only after they were multiplied.
Block hash(const HashKey& key, std::span<const std::byte> payload) {
  assert(payload.size() <= kHashedBytesMax);
  const Many d;
  const std::size_t pieces = (payload.size() + kPieceBytes - 1) / kPieceBytes;
  const Block* power = &key.powers[kHashedBlocksMax - 1 - pieces];
  auto sum = Products<Many>::none();
  const auto add = [&](Blocks blocks) { sum.add(blocks, hn::LoadDup128(d, (power++)->data())); };
  const std::byte* piece = payload.data();
  std::size_t left = payload.size();
  for (; left >= kPieceBytes; left -= kPieceBytes, piece += kPieceBytes) add(clnh(key, piece, kPieceBytes));
  if (left > 0) add(clnh(key, piece, left));
  add(hn::IfThenElseZero(hn::FirstN(d, 1), hn::Set(d, payload.size())));
  return stored(reduced({sum_of_blocks(d, sum.low), sum_of_blocks(d, sum.high), sum_of_blocks(d, sum.middle)}));
}

bool is_supported() {
#if HWY_TARGET == HWY_AVX3_DL
  // All that the compiler may use for this target.
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512vnni") ||
      !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vbmi2") ||
      !__builtin_cpu_supports("avx512bitalg") || !__builtin_cpu_supports("avx512vpopcntdq") ||
      !__builtin_cpu_supports("vaes") || !__builtin_cpu_supports("vpclmulqdq") || !__builtin_cpu_supports("gfni")) {
    return false;
  }
#endif
#if HWY_ARCH_X86
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul");
#else
  return multiplies_polynomials();
#endif
}

}  // namespace

extern const HashKernel kKernel;
const HashKernel kKernel{
    .name = HWY_TARGET == HWY_AVX3_DL ? "avx512"
            : HWY_TARGET == HWY_AVX2  ? "avx2"
                                      : "neon",
    .is_supported = is_supported,
    .prepare = prepare,
    .hash = hash,
};

}  // namespace netfold::wire::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE

namespace netfold::wire {

std::vector<const HashKernel*> simd_hash_kernels() {
  return {
#if HWY_TARGETS & HWY_AVX3_DL
    &N_AVX3_DL::kKernel,
#endif
#if HWY_TARGETS & HWY_AVX2
        &N_AVX2::kKernel,
#endif
#if HWY_TARGETS & HWY_NEON
        &N_NEON::kKernel,
#endif
  };
}

}  // namespace netfold::wire

#endif

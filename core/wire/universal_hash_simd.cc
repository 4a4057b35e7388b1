// By carry-less multiplication: one source in Highway's operations, compiled once for each instruction set, as
// numbers/simd.cc is. The way to reduce is that of S. Gueron's papers on AES-GCM-SIV.
#define HWY_TARGET_INCLUDE "wire/universal_hash_simd.cc"
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3_DL | HWY_NEON))
#define HWY_WANT_AVX3_DL 1
#define HWY_IS_DEBUG_BUILD 0     // its checks are in the library
#include <hwy/foreach_target.h>  // first: it includes this file again for all targets but the last
#include <hwy/highway.h>

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

// In both halves of the result.
HWY_INLINE Element sum_of_halves(Element element) {
  return hn::Xor(element, hn::Shuffle01(element));
}

// Products before they are reduced, summed: of the low halves, of the high halves, and of both halves' sums.
struct Products {
  Element low, high, middle;

  HWY_INLINE static Products none() { return {hn::Zero(One()), hn::Zero(One()), hn::Zero(One())}; }

  HWY_INLINE void add(Element x, Element power) {
    low = hn::Xor(low, hn::CLMulLower(x, power));
    high = hn::Xor(high, hn::CLMulUpper(x, power));
    middle = hn::Xor(middle, hn::CLMulLower(sum_of_halves(x), sum_of_halves(power)));
  }

  HWY_INLINE Element reduced() const {
    const One d;
    const Element both = hn::Xor(hn::Xor(middle, low), high);
    Element lower = hn::Xor(low, hn::ShiftLeftBytes<8>(d, both));
    const Element upper = hn::Xor(high, hn::ShiftRightBytes<8>(d, both));
    const Element modulus = hn::Set(d, 0xc200000000000000);
    for (int half = 0; half < 2; ++half) lower = hn::Xor(hn::Shuffle01(lower), hn::CLMulLower(lower, modulus));
    return hn::Xor(lower, upper);
  }
};

void prepare(const Block& key, Powers& powers) {
  const Element point = load(key);
  Element power = point;
  for (std::size_t i = kHashedBlocksMax; i-- > 0;) {
    powers[i] = stored(power);
    Products product = Products::none();
    product.add(power, point);
    power = product.reduced();
  }
}

// A tensor comes from memory, and its next packet lies behind this one. Processors fetch by themselves only up to the
// end of a page of 4 KiB. An address behind the tensor does no harm.
constexpr std::size_t kPrefetchBytes = 2048;

template <class D>
HWY_INLINE hn::Vec<D> product_of_halves(D d, const void* block, const Block& word) {
  const auto sum = hn::Xor(hn::LoadU(d, static_cast<const std::uint64_t*>(block)), hn::LoadU(d, word.data()));
  return hn::CLMulLower(sum, hn::Shuffle01(sum));
}

Block clnh(const HashKey& key, std::span<const std::byte> piece) {
  assert(piece.size() <= kPieceBytes);
  const Many d;
  const std::size_t whole = piece.size() / kBlockBytes, at_once = hn::Lanes(d) / 2;
  std::size_t i = 0;
  auto sums = hn::Zero(d);
  for (; i + at_once <= whole; i += at_once) {
    __builtin_prefetch(piece.data() + i * kBlockBytes + kPrefetchBytes);
    sums = hn::Xor(sums, product_of_halves(d, piece.data() + i * kBlockBytes, key.words[i]));
  }
  Element sum = sum_of_blocks(d, sums);
  for (; i < whole; ++i) {
    sum = hn::Xor(sum, product_of_halves(One(), piece.data() + i * kBlockBytes, key.words[i]));
  }
  if (const std::size_t rest = piece.size() % kBlockBytes; rest > 0) {
    Block last{};
    std::memcpy(last.data(), piece.data() + whole * kBlockBytes, rest);
    sum = hn::Xor(sum, product_of_halves(One(), last.data(), key.words[whole]));
  }
  return stored(sum);
}

Block polyval(const Powers& powers, std::span<const Block> blocks) {
  assert(blocks.size() <= kHashedBlocksMax);
  const std::size_t first = kHashedBlocksMax - blocks.size();
  Products sum = Products::none();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    sum.add(load(blocks[i]), load(powers[first + i]));
  }
  return stored(sum.reduced());
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
    .clnh = clnh,
    .polyval = polyval,
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

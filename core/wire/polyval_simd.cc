// POLYVAL by carry-less multiplication: one source in Highway's operations, compiled once for each instruction set, as
// numbers/simd.cc is. The way to reduce is that of S. Gueron's papers on AES-GCM-SIV.
#define HWY_TARGET_INCLUDE "wire/polyval_simd.cc"
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3_DL | HWY_NEON))
#define HWY_WANT_AVX3_DL 1
#define HWY_IS_DEBUG_BUILD 0  // its checks are in the library
#include <hwy/foreach_target.h>  // first: it includes this file again for all targets but the last
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/polyval.h"
#if HWY_ARCH_ARM
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

// Highway compiles this file for a target without vectors too. No code calls that target, so it is empty.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();

namespace netfold::wire::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using One = hn::Full128<std::uint64_t>;  // block
using Many = hn::ScalableTag<std::uint64_t>;
using Element = hn::Vec<One>;

constexpr std::size_t kBlockBytes = sizeof(Block);

HWY_INLINE std::size_t blocks_at_once() {
  return hn::Lanes(Many()) / 2;
}

// A sum of products before they are reduced: of the low halves, of the high halves, and of both halves' sums.
template <class V>
struct Products {
  V low, high, middle;

  HWY_INLINE void add(V x, V power, V halves) {
    low = hn::Xor(low, hn::CLMulLower(x, power));
    high = hn::Xor(high, hn::CLMulUpper(x, power));
    middle = hn::Xor(middle, hn::CLMulLower(hn::Xor(x, hn::Shuffle01(x)), halves));
  }
};

template <class D>
HWY_INLINE Products<hn::Vec<D>> nothing(D d) {
  return {hn::Zero(d), hn::Zero(d), hn::Zero(d)};
}

// The sum of all blocks of a vector.
template <class D>
HWY_INLINE Element sum_of_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 2) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Xor(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

HWY_INLINE Element reduce(const Products<Element>& sum) {
  const One d;
  const Element middle = hn::Xor(hn::Xor(sum.middle, sum.low), sum.high);
  Element low = hn::Xor(sum.low, hn::ShiftLeftBytes<8>(d, middle));
  const Element high = hn::Xor(sum.high, hn::ShiftRightBytes<8>(d, middle));
  const Element modulus = hn::Set(d, 0xc200000000000000);
  for (int half = 0; half < 2; ++half) low = hn::Xor(hn::Shuffle01(low), hn::CLMulLower(low, modulus));
  return hn::Xor(low, high);
}

HWY_INLINE Element load(const void* from) {
  return hn::LoadU(One(), static_cast<const std::uint64_t*>(from));
}

void prepare(const Block& key, Powers& powers) {
  const One d;
  const Element point = hn::LoadU(d, reinterpret_cast<const std::uint64_t*>(key.data()));
  const Element point_halves = hn::Xor(point, hn::Shuffle01(point));
  Element power = point;
  for (std::size_t i = kPowers; i-- > 0;) {
    hn::StoreU(power, d, powers.powers[i].data());
    hn::StoreU(hn::Xor(power, hn::Shuffle01(power)), d, powers.halves[i].data());
    Products<Element> product = nothing(d);
    product.add(power, point, point_halves);
    power = reduce(product);
  }
}

// Absorbs blocks. Each is multiplied by the power that it has in the end of a group of at most kPowers blocks; where a
// group ends, the sum is reduced and added to the next group's first block.
class Hash {
 public:
  HWY_INLINE Hash(const Powers& powers, std::size_t blocks)
      : powers_(powers), next_(kPowers - ((blocks - 1) % kPowers + 1)) {}

  HWY_INLINE void absorb(Element block) {
    if (next_ == kPowers) begin_group();
    sum_.add(hn::Xor(block, carried_), load(powers_.powers[next_].data()), load(powers_.halves[next_].data()));
    carried_ = hn::Zero(One());
    ++next_;
  }

  HWY_INLINE void absorb(const std::byte* from, std::size_t blocks) {
    const Many d;
    const std::size_t at_once = blocks_at_once();
    while (blocks > 0) {
      absorb(load(from));  // alone: the sum so far is added to it
      from += kBlockBytes;
      --blocks;
      std::size_t in_group = std::min(blocks, kPowers - next_);
      blocks -= in_group;
      auto sum = nothing(d);
      for (; in_group >= at_once; in_group -= at_once, next_ += at_once, from += at_once * kBlockBytes) {
        sum.add(hn::LoadU(d, reinterpret_cast<const std::uint64_t*>(from)),
                hn::LoadU(d, powers_.powers[next_].data()), hn::LoadU(d, powers_.halves[next_].data()));
      }
      sum_.low = hn::Xor(sum_.low, sum_of_blocks(d, sum.low));
      sum_.high = hn::Xor(sum_.high, sum_of_blocks(d, sum.high));
      sum_.middle = hn::Xor(sum_.middle, sum_of_blocks(d, sum.middle));
      for (; in_group > 0; --in_group, from += kBlockBytes) absorb(load(from));
    }
  }

  HWY_INLINE Block finish() const {
    Block result;
    hn::StoreU(reduce(sum_), One(), reinterpret_cast<std::uint64_t*>(result.data()));
    return result;
  }

 private:
  HWY_INLINE void begin_group() {
    carried_ = reduce(sum_);
    sum_ = nothing(One());
    next_ = 0;
  }

  const Powers& powers_;
  std::size_t next_;  // power
  Products<Element> sum_ = nothing(One());
  Element carried_ = hn::Zero(One());
};

Block hash(const Powers& powers, std::span<const std::byte> head, std::span<const std::byte> payload) {
  assert(head.size() % kBlockBytes == 0);
  const std::size_t whole = payload.size() / kBlockBytes, rest = payload.size() % kBlockBytes;
  Hash hash(powers, head.size() / kBlockBytes + whole + (rest > 0 ? 1 : 0) + 1);
  hash.absorb(head.data(), head.size() / kBlockBytes);
  hash.absorb(payload.data(), whole);
  Block last{};
  if (rest > 0) {
    std::memcpy(last.data(), payload.data() + whole * kBlockBytes, rest);
    hash.absorb(load(last.data()));
  }
  const std::array<std::uint64_t, 2> bits{head.size() * 8, payload.size() * 8};
  hash.absorb(load(bits.data()));
  return hash.finish();
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
  return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
#endif
}

}  // namespace

extern const PolyvalKernel kPolyval;
const PolyvalKernel kPolyval{
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

std::vector<const PolyvalKernel*> simd_polyval_kernels() {
  return {
#if HWY_TARGETS & HWY_AVX3_DL
      &N_AVX3_DL::kPolyval,
#endif
#if HWY_TARGETS & HWY_AVX2
      &N_AVX2::kPolyval,
#endif
#if HWY_TARGETS & HWY_NEON
      &N_NEON::kPolyval,
#endif
  };
}

}  // namespace netfold::wire

#endif

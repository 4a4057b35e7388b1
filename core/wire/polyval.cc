// The specification: one bit after the other. Like the fast kernels it takes the same time whatever the bits are.
#include "wire/polyval.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace netfold::wire {
namespace {

static_assert(std::endian::native == std::endian::little);

using Element = std::array<std::uint64_t, 2>;  // bit i is the coefficient of x^i

// a * b * x^-128 modulo x^128 + x^127 + x^126 + x^121 + 1, as RFC 8452 defines dot(a, b).
Element dot(const Element& a, const Element& b) {
  std::array<std::uint64_t, 4> product{};
  const auto add_shifted = [&product](const Element& value, unsigned by, std::uint64_t mask) {
    const unsigned word = by / 64, bits = by % 64;
    for (unsigned i = 0; i < 2; ++i) {
      product[word + i] ^= (value[i] << bits) & mask;
      if (bits > 0 && word + i + 1 < 4) product[word + i + 1] ^= (value[i] >> (64 - bits)) & mask;
    }
  };
  for (unsigned bit = 0; bit < 128; ++bit) add_shifted(a, bit, 0 - ((b[bit / 64] >> bit % 64) & 1));
  // A multiple of the modulus clears one of the lower 128 bits after the other. x^128 of it is added apart.
  constexpr Element kModulus{1, (1ULL << 63) | (1ULL << 62) | (1ULL << 57)};
  for (unsigned bit = 0; bit < 128; ++bit) {
    const std::uint64_t mask = 0 - ((product[bit / 64] >> bit % 64) & 1);
    add_shifted(kModulus, bit, mask);
    product[2 + bit / 64] ^= (1ULL << bit % 64) & mask;
  }
  return {product[2], product[3]};
}

Element load(const std::byte* from, std::size_t bytes) {
  Element element{};
  std::memcpy(element.data(), from, bytes);
  return element;
}

void prepare(const Block& key, Powers& powers) {
  const Element point = load(key.data(), key.size());
  Element power = point;
  for (std::size_t i = kPowers; i-- > 0; power = dot(power, point)) {
    powers.powers[i] = power;
    powers.halves[i].fill(power[0] ^ power[1]);
  }
}

Block hash(const Powers& powers, std::span<const std::byte> head, std::span<const std::byte> payload) {
  assert(head.size() % sizeof(Block) == 0);
  Element sum{};
  const auto absorb = [&](const Element& block) {
    for (unsigned i = 0; i < 2; ++i) sum[i] ^= block[i];
    sum = dot(sum, powers.powers.back());
  };
  for (const auto bytes : {head, payload}) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Block)) {
      absorb(load(bytes.data() + at, std::min(sizeof(Block), bytes.size() - at)));
    }
  }
  absorb({head.size() * 8, payload.size() * 8});
  return std::bit_cast<Block>(sum);
}

constexpr PolyvalKernel kReference{"reference", [] { return true; }, prepare, hash};

}  // namespace

std::span<const PolyvalKernel* const> all_polyval_kernels() {
  static const std::vector<const PolyvalKernel*> all = [] {
    std::vector<const PolyvalKernel*> kernels = simd_polyval_kernels();
    kernels.push_back(&kReference);
    return kernels;
  }();
  return all;
}

const PolyvalKernel& polyval_kernel() {
  static const PolyvalKernel& chosen =
      **std::ranges::find_if(all_polyval_kernels(), [](const PolyvalKernel* each) { return each->is_supported(); });
  return chosen;
}

}  // namespace netfold::wire

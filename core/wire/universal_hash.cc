// The specification: one bit after the other. Like the fast kernels it takes the same time whatever the bits are.
#include "wire/universal_hash.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace netfold::wire {
namespace {

static_assert(std::endian::native == std::endian::little);

using Product = std::array<std::uint64_t, 4>;

// Adds value * x^by, if `mask` is all ones.
void add_shifted(Product& product, const Block& value, unsigned by, std::uint64_t mask) {
  const unsigned word = by / 64, bits = by % 64;
  for (unsigned i = 0; i < 2; ++i) {
    product[word + i] ^= (value[i] << bits) & mask;
    if (bits > 0 && word + i + 1 < product.size()) product[word + i + 1] ^= (value[i] >> (64 - bits)) & mask;
  }
}

std::uint64_t mask_of(std::uint64_t word, unsigned bit) {
  return 0 - ((word >> bit) & 1);
}

// a * b * x^-128 modulo x^128 + x^127 + x^126 + x^121 + 1, as RFC 8452 defines dot(a, b).
Block dot(const Block& a, const Block& b) {
  Product product{};
  for (unsigned bit = 0; bit < 128; ++bit) add_shifted(product, a, bit, mask_of(b[bit / 64], bit % 64));
  // A multiple of the modulus clears one of the lower 128 bits after the other. x^128 of it is added apart.
  constexpr Block kModulus{1, (1ULL << 63) | (1ULL << 62) | (1ULL << 57)};
  for (unsigned bit = 0; bit < 128; ++bit) {
    const std::uint64_t mask = mask_of(product[bit / 64], bit % 64);
    add_shifted(product, kModulus, bit, mask);
    product[2 + bit / 64] ^= (1ULL << bit % 64) & mask;
  }
  return {product[2], product[3]};
}

void prepare(const Block& key, Powers& powers) {
  Block power = key;
  for (std::size_t i = kHashedBlocksMax; i-- > 0; power = dot(power, key)) powers[i] = power;
}

Block hash(const HashKey& key, std::span<const std::byte> payload) {
  assert(payload.size() <= kHashedBytesMax);
  std::array<Block, kHashedBlocksMax> blocks;
  std::size_t count = 0;
  for (std::size_t at = 0; at < payload.size(); at += kPieceBytes) {
    blocks[count++] = clnh(key, payload.subspan(at, std::min(kPieceBytes, payload.size() - at)));
  }
  blocks[count++] = {payload.size(), 0};
  return polyval(key.powers.back(), std::span(blocks).first(count));
}

constexpr HashKernel kReference{"reference", [] { return true; }, prepare, hash};

}  // namespace

Block clnh(const HashKey& key, std::span<const std::byte> piece) {
  assert(piece.size() <= kPieceBytes);
  Product sum{};
  for (std::size_t at = 0; at < piece.size(); at += kBlockBytes) {
    Block block{};
    std::memcpy(block.data(), piece.data() + at, std::min(kBlockBytes, piece.size() - at));
    const Block& word = key.words[at / kBlockBytes];
    const std::uint64_t low = block[0] ^ word[0], high = block[1] ^ word[1];
    for (unsigned bit = 0; bit < 64; ++bit) add_shifted(sum, {low, 0}, bit, mask_of(high, bit));
  }
  return {sum[0], sum[1]};
}

Block polyval(const Block& point, std::span<const Block> blocks) {
  assert(blocks.size() <= kHashedBlocksMax);
  Block sum{};
  for (const Block& block : blocks) {
    for (unsigned i = 0; i < 2; ++i) sum[i] ^= block[i];
    sum = dot(sum, point);
  }
  return sum;
}

std::span<const HashKernel* const> all_hash_kernels() {
  static const std::vector<const HashKernel*> all = [] {
    std::vector<const HashKernel*> kernels = simd_hash_kernels();
    kernels.push_back(&kReference);
    return kernels;
  }();
  return all;
}

const HashKernel& hash_kernel() {
  static const HashKernel& chosen =
      **std::ranges::find_if(all_hash_kernels(), [](const HashKernel* each) { return each->is_supported(); });
  return chosen;
}

}  // namespace netfold::wire

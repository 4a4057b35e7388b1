#include "wire/universal_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "support/random_seed.h"

namespace netfold::wire {
namespace {

Block block_of_hex(std::string_view hex) {
  std::array<std::byte, kBlockBytes> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
  }
  return std::bit_cast<Block>(bytes);
}

Block random_block(Prng& prng) {
  return {prng.next(), prng.next()};
}

// RFC 8452, appendix A, and appendix C.1, where a block is the plaintext and one its length.
TEST(UniversalHash, HasThePublishedPolyval) {
  const std::array two{block_of_hex("4f4f95668c83dfb6401762bb2d01a262"),
                       block_of_hex("d1a24ddd2721d006bbe45f20d3c9f362")};
  EXPECT_EQ(polyval(block_of_hex("25629347589242761d31f826ba4b757b"), two),
            block_of_hex("f7a3b47b846119fae5b7866cf5e5b77e"));
  const std::array short_text{Block{1, 0}, Block{0, 64}};
  EXPECT_EQ(polyval(block_of_hex("d9b360279694941ac5dbc6987ada7377"), short_text),
            block_of_hex("eb93b7740962c5e49d2a90a7dc5cec74"));
}

// (x^2 + 1) * (x + 1) and x^63 * x^2, with a key of zeros.
TEST(UniversalHash, MultipliesThePartsOfABlock) {
  const HashKey key{};
  const std::array<Block, 2> piece{Block{5, 3}, Block{1ULL << 63, 4}};
  EXPECT_EQ(clnh(key, std::as_bytes(std::span(piece).first(1))), (Block{15, 0}));
  EXPECT_EQ(clnh(key, std::as_bytes(std::span(piece))), (Block{15, 2}));
}

TEST(UniversalHash, IsTheSameOfAllKernels) {
  Prng prng(tests::random_seed());
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << tests::random_seed());
  const HashKernel& plain = *all_hash_kernels().back();
  HashKey key, expected_key;
  for (int round = 0; round < 300; ++round) {
    for (Block& word : key.words) word = random_block(prng);
    expected_key.words = key.words;
    const std::size_t size = prng.below(round % 50 == 0 ? kHashedBytesMax + 1 : 3000), at = prng.below(64);
    std::vector<std::byte> bytes(at + size);
    for (std::byte& each : bytes) each = static_cast<std::byte>(prng.next());
    const std::span<const std::byte> payload = std::span(bytes).subspan(at);
    const Block point = random_block(prng);
    plain.prepare(point, expected_key.powers);
    const Block expected = plain.hash(expected_key, payload);
    for (const HashKernel* kernel : all_hash_kernels()) {
      if (!kernel->is_supported()) continue;
      kernel->prepare(point, key.powers);
      EXPECT_EQ(key.powers, expected_key.powers) << kernel->name;
      EXPECT_EQ(kernel->hash(key, payload), expected) << kernel->name << ", " << size << " bytes";
    }
  }
}

TEST(UniversalHash, TellsAZeroAtTheEndFromNone) {
  Prng prng(1);
  HashKey key;
  for (Block& word : key.words) word = random_block(prng);
  hash_kernel().prepare(random_block(prng), key.powers);
  const std::vector<std::byte> zeros(1025);
  std::vector<Block> hashes;
  for (std::size_t size = 0; size <= zeros.size(); ++size) {
    hashes.push_back(hash_kernel().hash(key, std::span(zeros).first(size)));
  }
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end());
}

}  // namespace
}  // namespace netfold::wire

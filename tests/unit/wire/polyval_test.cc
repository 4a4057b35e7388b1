#include "wire/polyval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "support/random_seed.h"

namespace netfold::wire {
namespace {

std::vector<std::byte> of_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Block block_of_hex(std::string_view hex) {
  Block block;
  std::ranges::copy(of_hex(hex), block.begin());
  return block;
}

// RFC 8452, appendix C.1: the POLYVAL of additional data and plaintext under the record authentication key.
TEST(Polyval, MatchesThePublishedVectors) {
  const Block key = block_of_hex("d9b360279694941ac5dbc6987ada7377");
  for (const PolyvalKernel* kernel : all_polyval_kernels()) {
    if (!kernel->is_supported()) continue;
    Powers powers;
    kernel->prepare(key, powers);
    EXPECT_EQ(kernel->hash(powers, {}, of_hex("0100000000000000")), block_of_hex("eb93b7740962c5e49d2a90a7dc5cec74"))
        << kernel->name;
  }
}

TEST(Polyval, IsTheSameOfAllKernels) {
  Prng prng(tests::random_seed());
  SCOPED_TRACE(testing::Message() << "NETFOLD_SEED=" << tests::random_seed());
  const PolyvalKernel& plain = *all_polyval_kernels().back();
  for (int round = 0; round < 300; ++round) {
    Block key;
    for (std::byte& each : key) each = static_cast<std::byte>(prng.next());
    const std::size_t head = prng.below(4) * 16, size = prng.below(round % 10 == 0 ? 9000 : 200), at = prng.below(64);
    std::vector<std::byte> bytes(at + head + size);
    for (std::byte& each : bytes) each = static_cast<std::byte>(prng.next());
    const std::span<const std::byte> all = std::span(bytes).subspan(at);
    Powers powers, expected_powers;
    plain.prepare(key, expected_powers);
    const Block expected = plain.hash(expected_powers, all.first(head), all.subspan(head));
    for (const PolyvalKernel* kernel : all_polyval_kernels()) {
      if (!kernel->is_supported()) continue;
      kernel->prepare(key, powers);
      EXPECT_EQ(powers.powers, expected_powers.powers) << kernel->name;
      EXPECT_EQ(kernel->hash(powers, all.first(head), all.subspan(head)), expected) << kernel->name << " " << size;
    }
  }
}

}  // namespace
}  // namespace netfold::wire

// The order of a fold (spec section 3), against a recursion over whole tensors written only here.
#include <gtest/gtest.h>

#include "numbers/codec.h"
#include "numbers/fold.h"
#include "samples.h"
#include "testing/plain_fold.h"

namespace netfold::numbers::testing {
namespace {

std::vector<float> decoded(WireFormat wire, const std::byte* payload, std::size_t count) {
  std::vector<float> values(count);
  decode(wire, ElementType::kFp32, payload, count, values.data(), 1, reference());
  return values;
}

std::vector<WireFormat> floating_formats() {
  std::vector<WireFormat> formats{{Format::kFp32}, {Format::kFp16}, {Format::kBf16}};
  for (const BfpShape shape : all_shapes()) formats.push_back({Format::kBfp, shape});
  return formats;
}

class EveryFolder : public ::testing::TestWithParam<const Kernels*> {};

struct Contributions {
  Contributions(Prng& prng, WireFormat wire, std::size_t workers, std::size_t count) {
    for (std::size_t rank = 0; rank < workers; ++rank) {
      const std::vector<float> values = samples(prng, count);
      payloads.emplace_back(encoded_bytes(wire, count), prng.below(64));
      encode(wire, ElementType::kFp32, values.data(), count, payloads.back().data(), reference());
    }
    for (Unaligned& payload : payloads) pointers.push_back(payload.data());
  }

  std::vector<Unaligned> payloads;
  std::vector<const std::byte*> pointers;
};

TEST_P(EveryFolder, SumsPairwiseInRankOrder) {
  constexpr std::size_t kCountMax = 2500;
  Folder folder(kCountMax, 17, *GetParam());
  std::uint64_t seed = 0;
  for (const WireFormat wire : floating_formats()) {
    for (std::size_t workers = 1; workers <= 17; ++workers) {
      Prng prng(++seed);
      const std::size_t count = prng.chance(0.2) ? 1 + prng.below(kCountMax) : 1 + prng.below(300);
      Contributions from(prng, wire, workers, count);
      std::vector<std::vector<float>> leaves;
      for (const std::byte* payload : from.pointers) leaves.push_back(decoded(wire, payload, count));
      const std::vector<float> sum = netfold::testing::plain_fold(leaves, 0, workers);
      std::vector<std::byte> expected(encoded_bytes(wire, count));
      encode(wire, ElementType::kFp32, sum.data(), count, expected.data(), reference());

      Unaligned out(expected.size(), prng.below(64));
      folder.fold(wire, from.pointers, count, out.data());
      ASSERT_TRUE(out.guard_is_whole()) << "wrote past the end, seed " << seed;
      // As floats, because one NaN may stand for another.
      ASSERT_EQ(difference(decoded(wire, expected.data(), count), decoded(wire, out.data(), count)), "")
          << name_of(wire.format) << " seed " << seed << " workers " << workers << " count " << count;
      if (wire.format == Format::kBfp) {
        ASSERT_EQ(difference(expected, out.content()), "") << "seed " << seed << " workers " << workers;
      }
    }
  }
}

TEST_P(EveryFolder, SumsManyWorkers) {
  for (const std::size_t workers : {31u, 64u, 100u, 257u}) {
    for (const Format format : {Format::kFp32, Format::kBfp}) {
      const WireFormat wire{format};
      Prng prng(workers);
      Contributions from(prng, wire, workers, 77);
      std::vector<std::vector<float>> leaves;
      for (const std::byte* payload : from.pointers) leaves.push_back(decoded(wire, payload, 77));
      const std::vector<float> sum = netfold::testing::plain_fold(leaves, 0, workers);
      std::vector<std::byte> expected(encoded_bytes(wire, 77));
      encode(wire, ElementType::kFp32, sum.data(), 77, expected.data(), reference());
      Unaligned out(expected.size(), 1);
      Folder(77, workers, *GetParam()).fold(wire, from.pointers, 77, out.data());
      ASSERT_EQ(difference(decoded(wire, expected.data(), 77), decoded(wire, out.data(), 77)), "")
          << name_of(format) << " workers " << workers;
    }
  }
}

TEST_P(EveryFolder, WrapsIntegers) {
  for (std::size_t workers = 1; workers <= 17; ++workers) {
    Prng prng(workers);
    const std::size_t count = 1 + prng.below(300);
    std::vector<std::vector<std::uint32_t>> values(workers, std::vector<std::uint32_t>(count));
    std::vector<std::uint32_t> expected(count);
    std::vector<const std::byte*> pointers;
    for (auto& contribution : values) {
      for (std::size_t i = 0; i < count; ++i) {
        contribution[i] = static_cast<std::uint32_t>(prng.next());
        expected[i] += contribution[i];
      }
      pointers.push_back(reinterpret_cast<const std::byte*>(contribution.data()));
    }
    std::vector<std::uint32_t> sum(count);
    Folder(count, workers, *GetParam())
        .fold({Format::kInt32}, pointers, count, reinterpret_cast<std::byte*>(sum.data()));
    ASSERT_EQ(expected, sum) << workers << " workers";
  }
}

// Left to right, (1 + -2^30) + 2^30 loses the 1 and pairwise order keeps it: an order that is not the tree shows.
TEST_P(EveryFolder, KeepsTheTreesOrder) {
  const std::vector<float> values{1.0f, 0x1p-30f, -1.0f, 0x1p30f, -0x1p30f};
  std::vector<const std::byte*> pointers;
  for (const float& value : values) pointers.push_back(reinterpret_cast<const std::byte*>(&value));
  float sum = 0;
  Folder(1, 5, *GetParam()).fold({Format::kFp32}, pointers, 1, reinterpret_cast<std::byte*>(&sum));
  // ((1 + 2^-30) + (-1 + 2^30)) + -2^30 = (1 + 2^30) - 2^30, each rounded = 0
  EXPECT_EQ(bits_of(sum), bits_of(0.0f));
  std::swap(pointers[1], pointers[3]);  // ((1 + 2^30) + (-1 + 2^-30)) + -2^30
  Folder(1, 5, *GetParam()).fold({Format::kFp32}, pointers, 1, reinterpret_cast<std::byte*>(&sum));
  EXPECT_EQ(bits_of(sum), bits_of(0.0f));
  const std::vector<float> cancelling{0x1p30f, 1.0f, -0x1p30f};  // (2^30 + 1) - 2^30 = 0
  const std::vector<float> kept{0x1p30f, -0x1p30f, 1.0f};        // (2^30 - 2^30) + 1 = 1
  for (const auto& [three, expected] : {std::pair{cancelling, 0.0f}, std::pair{kept, 1.0f}}) {
    std::vector<const std::byte*> of_three;
    for (const float& value : three) of_three.push_back(reinterpret_cast<const std::byte*>(&value));
    Folder(1, 3, *GetParam()).fold({Format::kFp32}, of_three, 1, reinterpret_cast<std::byte*>(&sum));
    EXPECT_EQ(sum, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, EveryFolder, ::testing::ValuesIn([] {
                           std::vector<const Kernels*> tables = fast_tables();
                           tables.push_back(&reference());
                           return tables;
                         }()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace netfold::numbers::testing

// Every table against the reference: random and awkward numbers, odd counts, unaligned pointers, all shapes.
#include <gtest/gtest.h>

#include "samples.h"

namespace netfold::numbers::testing {
namespace {

constexpr std::uint64_t kSeeds = 1500;

class EveryTable : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& table() const { return *GetParam(); }
};

// One seed's data: floats, and where the buffers lie.
struct Case {
  explicit Case(std::uint64_t seed)
      : prng(seed),
        shape(any_shape(prng)),
        count(prng.below(prng.chance(0.1) ? 3000 : 301)),
        offset(prng.below(64)),
        values(samples(prng, count)) {}

  Prng prng;
  BfpShape shape;
  std::size_t count;
  std::size_t offset;
  std::vector<float> values;
};

template <class Call>
Unaligned written_by(const Call& call, std::size_t size_bytes, std::size_t offset) {
  Unaligned out(size_bytes, offset);
  call(out);
  EXPECT_TRUE(out.guard_is_whole()) << "wrote past the end";
  return out;
}

TEST_P(EveryTable, EncodesBfpAsTheReferenceDoes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Case c(seed);
    if (seed % 3 == 0) c.shape = {};
    const std::size_t size_bytes = encoded_bytes({Format::kBfp, c.shape}, c.count);
    Unaligned in(c.values.data(), c.count * sizeof(float), c.offset);
    const auto by = [&](const Kernels& with) {
      return written_by([&](Unaligned& out) { with.bfp_encode(c.shape, in.as<float>(), c.count, out.data()); },
                        size_bytes, c.offset / 2)
          .content();
    };
    ASSERT_EQ(difference(by(reference()), by(table())), "")
        << "seed " << seed << " block " << +c.shape.block << " mantissa " << +c.shape.mantissa << " count " << c.count;
  }
}

TEST_P(EveryTable, EncodesBfpStochasticallyAsTheReferenceDoes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Case c(seed);
    if (seed % 3 == 0) c.shape = {};
    const RoundingSeed rounding{c.prng.next(), static_cast<std::uint32_t>(c.prng.next())};
    const std::size_t size_bytes = encoded_bytes({Format::kBfp, c.shape}, c.count);
    Unaligned in(c.values.data(), c.count * sizeof(float), c.offset);
    const auto by = [&](const Kernels& with) {
      return written_by(
                 [&](Unaligned& out) {
                   with.bfp_encode_stochastic(c.shape, in.as<float>(), c.count, rounding, out.data());
                 },
                 size_bytes, c.offset / 2)
          .content();
    };
    ASSERT_EQ(difference(by(reference()), by(table())), "")
        << "seed " << seed << " block " << +c.shape.block << " mantissa " << +c.shape.mantissa << " count " << c.count;
  }
}

// Any bytes at all: what a hostile peer may send must decode the same everywhere, too.
TEST_P(EveryTable, DecodesAnyBytesAsTheReferenceDoes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Case c(seed);
    if (seed % 3 == 0) c.shape = {};
    std::vector<std::byte> wire(encoded_bytes({Format::kBfp, c.shape}, c.count));
    for (std::byte& byte : wire) byte = static_cast<std::byte>(c.prng.next());
    const std::size_t stride = bfp_block_bytes(c.shape);
    for (std::size_t at = 0; at < wire.size(); at += stride) {
      if (c.prng.chance(0.3)) wire[at] = static_cast<std::byte>(c.prng.chance(0.5) ? c.prng.below(9) : 255);
    }
    Unaligned in(wire.data(), wire.size(), c.offset);
    const auto decoded_by = [&](const Kernels& with) {
      return written_by([&](Unaligned& out) { with.bfp_decode(c.shape, in.data(), c.count, out.as<float>()); },
                        c.count * sizeof(float), c.offset / 2)
          .floats();
    };
    const auto added_by = [&](const Kernels& with) {
      return written_by(
                 [&](Unaligned& out) {
                   if (c.count > 0) std::memcpy(out.data(), c.values.data(), c.count * sizeof(float));
                   with.bfp_decode_add(c.shape, in.data(), c.count, out.as<float>());
                 },
                 c.count * sizeof(float), c.offset / 2)
          .floats();
    };
    ASSERT_EQ(difference(decoded_by(reference()), decoded_by(table())), "")
        << "decode, seed " << seed << " block " << +c.shape.block << " mantissa " << +c.shape.mantissa;
    ASSERT_EQ(difference(added_by(reference()), added_by(table())), "")
        << "decode and add, seed " << seed << " block " << +c.shape.block << " mantissa " << +c.shape.mantissa;
    ASSERT_EQ(reference().bfp_is_well_formed(c.shape, in.data(), c.count),
              table().bfp_is_well_formed(c.shape, in.data(), c.count))
        << "seed " << seed;
  }
}

TEST_P(EveryTable, FindsEveryMalformedExponent) {
  for (const BfpShape shape : all_shapes()) {
    const std::size_t stride = bfp_block_bytes(shape);
    const std::size_t blocks = 21;
    std::vector<std::byte> wire(blocks * stride, std::byte{1});  // mantissas of 1 are not exponents
    for (std::size_t block = 0; block < blocks; ++block) wire[block * stride] = std::byte{100};
    ASSERT_TRUE(table().bfp_is_well_formed(shape, wire.data(), blocks * shape.block));
    for (std::size_t block = 0; block < blocks; ++block) {
      for (unsigned exponent = 0; exponent < 256; ++exponent) {
        wire[block * stride] = static_cast<std::byte>(exponent);
        ASSERT_EQ(table().bfp_is_well_formed(shape, wire.data(), blocks * shape.block),
                  exponent == 0 || exponent >= shape.mantissa)
            << "exponent " << exponent << " in block " << block << " of " << +shape.block << ", " << +shape.mantissa;
      }
      wire[block * stride] = std::byte{100};
    }
  }
}

TEST_P(EveryTable, AddsAndDividesAsTheReferenceDoes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Case c(seed);
    const std::vector<float> others = samples(c.prng, c.count);
    const std::size_t size_bytes = c.count * sizeof(float);
    Unaligned a(c.values.data(), size_bytes, c.offset);
    Unaligned b(others.data(), size_bytes, c.offset / 3);
    const float divisor = static_cast<float>(1 + c.prng.below(70));
    const auto sum_by = [&](const Kernels& with) {
      return written_by([&](Unaligned& out) { with.add_fp32(a.as<float>(), b.as<float>(), c.count, out.as<float>()); },
                        size_bytes, c.offset / 2)
          .floats();
    };
    const auto integer_sum_by = [&](const Kernels& with) {
      return written_by(
                 [&](Unaligned& out) {
                   with.add_int32(a.as<std::int32_t>(), b.as<std::int32_t>(), c.count, out.as<std::int32_t>());
                 },
                 size_bytes, c.offset / 2)
          .content();
    };
    const auto quotient_by = [&](const Kernels& with) {
      return written_by([&](Unaligned& out) { with.divide_fp32(a.as<float>(), divisor, c.count, out.as<float>()); },
                        size_bytes, c.offset / 2)
          .floats();
    };
    ASSERT_EQ(difference(sum_by(reference()), sum_by(table())), "") << "sum, seed " << seed;
    ASSERT_EQ(difference(integer_sum_by(reference()), integer_sum_by(table())), "") << "integer sum, seed " << seed;
    ASSERT_EQ(difference(quotient_by(reference()), quotient_by(table())), "") << "quotient, seed " << seed;
  }
}

TEST_P(EveryTable, RoundsTo16BitsAsTheReferenceDoes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Case c(seed);
    Unaligned in(c.values.data(), c.count * sizeof(float), c.offset);
    for (const auto round : {&Kernels::fp32_to_fp16, &Kernels::fp32_to_bf16}) {
      const auto by = [&](const Kernels& with) {
        return written_by([&](Unaligned& out) { (with.*round)(in.as<float>(), c.count, out.as<std::uint16_t>()); },
                          c.count * sizeof(std::uint16_t), c.offset / 2)
            .content();
      };
      ASSERT_EQ(difference(by(reference()), by(table())), "") << "seed " << seed;
    }
  }
}

// The floats around every fp16 and bf16 value and around the middle between it and its neighbour.
TEST_P(EveryTable, RoundsEveryTieTo16BitsAsTheReferenceDoes) {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> near;
  std::vector<float> widened(halves.size());
  for (const auto widen : {&Kernels::fp16_to_fp32, &Kernels::bf16_to_fp32}) {
    (reference().*widen)(halves.data(), halves.size(), widened.data());
    for (const float value : widened) {
      for (const std::uint32_t apart : {0x1000u, 0x8000u, 0u}) {
        for (const std::uint32_t by : {0xffffffffu, 0u, 1u}) near.push_back(from_bits(bits_of(value) + apart + by));
      }
    }
  }
  std::vector<std::uint16_t> expected(near.size());
  std::vector<std::uint16_t> got(near.size());
  for (const auto round : {&Kernels::fp32_to_fp16, &Kernels::fp32_to_bf16}) {
    (reference().*round)(near.data(), near.size(), expected.data());
    (table().*round)(near.data(), near.size(), got.data());
    for (std::size_t i = 0; i < near.size(); ++i) {
      ASSERT_EQ(expected[i], got[i]) << std::hex << "of float " << bits_of(near[i]);
    }
  }
}

TEST_P(EveryTable, WidensEvery16BitValueAsTheReferenceDoes) {
  std::vector<std::uint16_t> halves((1 << 16) + 5);  // not a whole number of vectors
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> expected(halves.size());
  std::vector<float> got(halves.size());
  for (const auto widen : {&Kernels::fp16_to_fp32, &Kernels::bf16_to_fp32}) {
    (reference().*widen)(halves.data(), halves.size(), expected.data());
    (table().*widen)(halves.data(), halves.size(), got.data());
    ASSERT_EQ(difference(expected, got), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, EveryTable, ::testing::ValuesIn(fast_tables()),
                         [](const auto& test) { return std::string(test.param->name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryTable);  // a machine may have only the reference

}  // namespace
}  // namespace netfold::numbers::testing

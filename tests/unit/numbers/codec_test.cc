// Tensors to payloads and back: every pair of element type and format that can meet.
#include "numbers/codec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "samples.h"

namespace netfold::numbers::testing {
namespace {

constexpr std::size_t kCount = 2500;  // more than two of the codec's tiles

// One value a time, by the reference.
float widened(ElementType type, const std::byte* element) {
  float value = 0;
  if (type == ElementType::kFp32) std::memcpy(&value, element, sizeof value);
  if (type == ElementType::kFp16) reference().fp16_to_fp32(reinterpret_cast<const std::uint16_t*>(element), 1, &value);
  if (type == ElementType::kBf16) reference().bf16_to_fp32(reinterpret_cast<const std::uint16_t*>(element), 1, &value);
  return value;
}

std::vector<std::byte> tensor_of(ElementType type, const std::vector<float>& values) {
  std::vector<std::byte> tensor(values.size() * size_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* element = tensor.data() + i * size_bytes(type);
    auto* half = reinterpret_cast<std::uint16_t*>(element);
    if (type == ElementType::kFp32) std::memcpy(element, &values[i], sizeof(float));
    if (type == ElementType::kFp16) reference().fp32_to_fp16(&values[i], 1, half);
    if (type == ElementType::kBf16) reference().fp32_to_bf16(&values[i], 1, half);
  }
  return tensor;
}

std::vector<float> widened(ElementType type, const std::vector<std::byte>& tensor) {
  std::vector<float> values(tensor.size() / size_bytes(type));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = widened(type, tensor.data() + i * size_bytes(type));
  return values;
}

class EveryPair : public ::testing::TestWithParam<std::tuple<ElementType, Format>> {};

// The long way: widen all, put all on the wire in one call; take all off in one call, divide, round.
TEST_P(EveryPair, EncodesAndDecodesAsIfInOneStep) {
  const auto [type, format] = GetParam();
  for (const Kernels* table : all_kernels()) {
    if (!table->is_supported()) continue;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Prng prng(seed);
      const WireFormat wire{format, any_shape(prng)};
      const std::vector<std::byte> tensor = tensor_of(type, samples(prng, prng.chance(0.5) ? kCount : prng.below(100)));
      const std::vector<float> values = widened(type, tensor);
      std::vector<std::byte> payload(encoded_bytes(wire, values.size()));
      encode(wire, type, tensor.data(), values.size(), payload.data(), *table);
      std::vector<std::byte> expected(payload.size());
      encode(wire, ElementType::kFp32, values.data(), values.size(), expected.data(), reference());
      std::vector<float> expected_values(values.size());
      std::vector<float> got_values(values.size());
      decode(wire, ElementType::kFp32, expected.data(), values.size(), expected_values.data(), 1, reference());
      decode(wire, ElementType::kFp32, payload.data(), values.size(), got_values.data(), 1, reference());
      ASSERT_EQ(difference(expected_values, got_values), "") << table->name << " seed " << seed;
      ASSERT_TRUE(is_well_formed(wire, payload.data(), values.size(), *table));

      const auto divide_by = static_cast<std::uint32_t>(1 + prng.below(9));
      std::vector<std::byte> result(tensor.size());
      decode(wire, type, payload.data(), values.size(), result.data(), divide_by, *table);
      for (float& value : expected_values) value /= static_cast<float>(divide_by);
      ASSERT_EQ(difference(widened(type, tensor_of(type, expected_values)), widened(type, result)), "")
          << table->name << " seed " << seed << " divided by " << divide_by;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, EveryPair,
    ::testing::Combine(::testing::Values(ElementType::kFp32, ElementType::kFp16, ElementType::kBf16),
                       ::testing::Values(Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp)),
    [](const auto& test) {
      return std::string(name_of(std::get<0>(test.param))) + "_as_" + name_of(std::get<1>(test.param));
    });

TEST(Codec, TakesIntegersAsTheyAreAndTruncatesAverages) {
  const std::vector<std::int32_t> values{7, -7, 0, INT32_MIN, INT32_MAX};
  std::vector<std::byte> payload(values.size() * 4);
  encode({Format::kInt32}, ElementType::kInt32, values.data(), values.size(), payload.data());
  std::vector<std::int32_t> result(values.size());
  decode({Format::kInt32}, ElementType::kInt32, payload.data(), values.size(), result.data());
  EXPECT_EQ(result, values);
  decode({Format::kInt32}, ElementType::kInt32, payload.data(), values.size(), result.data(), 2);
  EXPECT_EQ(result, (std::vector<std::int32_t>{3, -3, 0, INT32_MIN / 2, INT32_MAX / 2}));
}

TEST(Codec, RoundsStochasticallyTheSameWhereverAChunkStarts) {
  Prng prng(3);
  const std::vector<float> values = samples(prng, kCount);
  const WireFormat wire{Format::kBfp};
  for (const ElementType type : {ElementType::kFp32, ElementType::kBf16}) {
    const std::vector<std::byte> tensor = tensor_of(type, values);
    std::vector<std::byte> whole(encoded_bytes(wire, kCount));
    encode_stochastic(wire, type, tensor.data(), kCount, {9, 100}, whole.data());
    constexpr std::size_t kFirst = 320;
    std::vector<std::byte> part(encoded_bytes(wire, kCount - kFirst));
    encode_stochastic(wire, type, tensor.data() + kFirst * size_bytes(type), kCount - kFirst, {9, 100 + kFirst},
                      part.data());
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(encoded_bytes(wire, kFirst));
    EXPECT_EQ(difference(std::vector<std::byte>(begin, whole.end()), part), "");
  }
}

constexpr std::size_t kLarge = (std::size_t{17} << 20) / sizeof(float) + 5;

// A whole large buffer at an offset from a cache line, and bytes on both sides of it that must stay as they were.
class LargeBuffer {
 public:
  LargeBuffer(std::size_t size_bytes, std::size_t offset)
      : memory_(size_bytes + 3 * kLine, std::byte{0xa5}), size_bytes_(size_bytes) {
    data_ =
        memory_.data() + kLine + (kLine - reinterpret_cast<std::uintptr_t>(memory_.data()) % kLine) % kLine + offset;
  }
  std::byte* data() { return data_; }
  std::vector<std::byte> content() const { return {data_, data_ + size_bytes_}; }
  bool guards_are_whole() const {
    const auto is_whole = [](std::byte byte) { return byte == std::byte{0xa5}; };
    return std::all_of(memory_.data(), static_cast<const std::byte*>(data_), is_whole) &&
           std::all_of(static_cast<const std::byte*>(data_) + size_bytes_, memory_.data() + memory_.size(), is_whole);
  }

 private:
  static constexpr std::size_t kLine = 64;
  std::vector<std::byte> memory_;
  std::size_t size_bytes_;
  std::byte* data_;
};

// Above a threshold results go past the caches; at any alignment they are the same bytes, and no others are written.
TEST(Codec, DecodesLargeTensorsAtAnyAlignment) {
  Prng prng(4);
  std::vector<std::byte> wire(encoded_bytes({Format::kBfp}, kLarge));
  for (std::byte& byte : wire) byte = static_cast<std::byte>(prng.next());
  std::vector<float> expected(kLarge);
  reference().bfp_decode({}, wire.data(), kLarge, expected.data());
  for (const Kernels* table : fast_tables()) {
    for (const std::size_t offset : {0u, 4u, 16u, 32u, 1u}) {
      LargeBuffer out(kLarge * sizeof(float), offset);
      table->bfp_decode({}, wire.data(), kLarge, reinterpret_cast<float*>(out.data()));
      std::vector<float> got(kLarge);
      std::memcpy(got.data(), out.data(), kLarge * sizeof(float));
      ASSERT_EQ(difference(expected, got), "") << table->name << " offset " << offset;
      ASSERT_TRUE(out.guards_are_whole()) << table->name << " offset " << offset;
    }
  }
}

TEST(Codec, EncodesLargeTensorsAtAnyAlignment) {
  Prng prng(5);
  std::vector<float> values(kLarge);
  for (float& value : values) value = sample(prng, Mix::kFewSpecial);
  std::vector<std::byte> expected(encoded_bytes({Format::kBfp}, kLarge));
  reference().bfp_encode({}, values.data(), kLarge, expected.data());
  for (const Kernels* table : fast_tables()) {
    for (const std::size_t offset : {0u, 1u, 17u, 63u}) {
      LargeBuffer out(expected.size(), offset);
      table->bfp_encode({}, values.data(), kLarge, out.data());
      ASSERT_EQ(difference(expected, out.content()), "") << table->name << " offset " << offset;
      ASSERT_TRUE(out.guards_are_whole()) << table->name << " offset " << offset;
    }
  }
}

// Decoded elements are encoded again to the same bits: ranks may encode decoded elements, and all end with the same
// bits.
TEST(Codec, EncodingADecodedValueGivesTheSameBytes) {
  for (const Format format : {Format::kFp32, Format::kFp16, Format::kBf16, Format::kBfp}) {
    for (int block = 8; block <= (format == Format::kBfp ? 128 : 8); block *= 2) {
      for (int mantissa = 2; mantissa <= (format == Format::kBfp ? 7 : 2); ++mantissa) {
        for (int mix = 0; mix < static_cast<int>(Mix::kCount); ++mix) {
          const WireFormat wire{format, {static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)}};
          Prng prng(static_cast<std::uint64_t>(mix));
          std::vector<float> values(kCount);
          for (float& value : values) value = sample(prng, static_cast<Mix>(mix));
          std::vector<std::byte> once(encoded_bytes(wire, kCount)), twice(once.size());
          std::vector<float> decoded(kCount);
          encode(wire, ElementType::kFp32, values.data(), kCount, once.data());
          decode(wire, ElementType::kFp32, once.data(), kCount, decoded.data());
          encode(wire, ElementType::kFp32, decoded.data(), kCount, twice.data());
          ASSERT_EQ(once, twice) << name_of(format) << "<" << block << ", " << mantissa << "> mix " << mix;
        }
      }
    }
  }
}

}  // namespace
}  // namespace netfold::numbers::testing

// Element-wise arithmetic against its plain definition, in wide numbers.
#include "numbers/combine.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/prng.h"
#include "numbers/kernels.h"
#include "support/random_seed.h"

namespace netfold::numbers {
namespace {

constexpr std::array kOperations{Operation::kSum, Operation::kProduct, Operation::kMin, Operation::kMax,
                                 Operation::kAnd, Operation::kOr,      Operation::kXor};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// By 128-bit integers, cut to the type's bits.
template <class T>
T plain(Operation operation, T a, T b) {
  const __int128 x = a, y = b;
  switch (operation) {
    case Operation::kSum: return static_cast<T>(x + y);
    case Operation::kProduct: return static_cast<T>(x * y);
    case Operation::kMin: return static_cast<T>(x < y ? x : y);
    case Operation::kMax: return static_cast<T>(x < y ? y : x);
    case Operation::kAnd: return static_cast<T>(x & y);
    case Operation::kOr: return static_cast<T>(x | y);
    case Operation::kXor: return static_cast<T>(x ^ y);
  }
  return {};
}

template <class T>
void expect_integers(ElementType type) {
  Prng prng(tests::random_seed());
  std::vector<T> a(1003), b(1003);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(prng.next()), b[i] = static_cast<T>(prng.next());
  a[0] = std::numeric_limits<T>::min(), b[0] = std::numeric_limits<T>::min();
  a[1] = std::numeric_limits<T>::max(), b[1] = std::numeric_limits<T>::max();
  for (const Operation operation : kOperations) {
    ASSERT_TRUE(is_defined(operation, type));
    std::vector<std::byte> in_place = bytes_of(a);
    combine(operation, type, in_place.data(), bytes_of(b).data(), a.size(), in_place.data());
    const auto got = values_of<T>(in_place);
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(got[i], plain(operation, a[i], b[i])) << name_of(type) << " " << name_of(operation) << " at " << i;
    }
  }
  std::vector<std::byte> divided = bytes_of(a);
  divide(type, divided.data(), a.size(), 3);
  const auto got = values_of<T>(divided);
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(got[i], static_cast<T>(static_cast<__int128>(a[i]) / 3));
}

TEST(Combine, IntegersWrapAndAreTruncated) {
  expect_integers<std::int8_t>(ElementType::kInt8);
  expect_integers<std::int16_t>(ElementType::kInt16);
  expect_integers<std::int32_t>(ElementType::kInt32);
  expect_integers<std::int64_t>(ElementType::kInt64);
  expect_integers<std::uint8_t>(ElementType::kUint8);
  expect_integers<std::uint16_t>(ElementType::kUint16);
  expect_integers<std::uint32_t>(ElementType::kUint32);
  expect_integers<std::uint64_t>(ElementType::kUint64);
}

template <class T>
void expect_reals(ElementType type) {
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  const std::vector<T> a{1, -2, 3.5, nan, 1, inf, -0.0}, b{2, 5, 3.5, 1, nan, -inf, 7};
  const auto run = [&](Operation operation) {
    std::vector<std::byte> out(a.size() * sizeof(T));
    combine(operation, type, bytes_of(a).data(), bytes_of(b).data(), a.size(), out.data());
    return values_of<T>(out);
  };
  for (const auto& [operation, expected] :
       std::vector<std::pair<Operation, std::vector<T>>>{{Operation::kSum, {3, 3, 7, nan, nan, nan, 7}},
                                                         {Operation::kProduct, {2, -10, 12.25, nan, nan, -inf, 0}},
                                                         {Operation::kMin, {1, -2, 3.5, nan, nan, -inf, 0}},
                                                         {Operation::kMax, {2, 5, 3.5, nan, nan, inf, 7}}}) {
    const auto got = run(operation);
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << name_of(operation) << " at " << i << ": " << got[i];
      } else {
        EXPECT_EQ(got[i], expected[i]) << name_of(operation) << " at " << i;
      }
    }
  }
  EXPECT_FALSE(is_defined(Operation::kXor, type));
}

TEST(Combine, AMinimumWithANanIsANan) {
  expect_reals<float>(ElementType::kFp32);
  expect_reals<double>(ElementType::kFp64);
}

TEST(Combine, SixteenBitFloatsAreRoundedAfterEachOperation) {
  for (const ElementType type : {ElementType::kFp16, ElementType::kBf16}) {
    const auto& with = kernels();
    std::vector<float> a(700), b(700), expected(700), got(700);
    Prng prng(tests::random_seed());
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(prng.unit() * 4 - 2), b[i] = static_cast<float>(prng.unit() * 4 - 2);
    }
    std::vector<std::uint16_t> x(700), y(700), z(700);
    const auto narrow = type == ElementType::kFp16 ? with.fp32_to_fp16 : with.fp32_to_bf16;
    const auto widen = type == ElementType::kFp16 ? with.fp16_to_fp32 : with.bf16_to_fp32;
    narrow(a.data(), a.size(), x.data()), narrow(b.data(), b.size(), y.data());
    widen(x.data(), x.size(), a.data()), widen(y.data(), y.size(), b.data());
    for (std::size_t i = 0; i < a.size(); ++i) expected[i] = a[i] * b[i];
    narrow(expected.data(), expected.size(), z.data());
    auto out = bytes_of(x);
    combine(Operation::kProduct, type, out.data(), bytes_of(y).data(), x.size(), out.data());
    EXPECT_EQ(values_of<std::uint16_t>(out), z) << name_of(type);
  }
}

TEST(Combine, BoolsAreTrueOrFalse) {
  const std::vector<std::uint8_t> a{0, 0, 1, 1, 0, 255}, b{0, 1, 0, 1, 2, 3};
  const auto run = [&](Operation operation) {
    std::vector<std::byte> out(a.size());
    combine(operation, ElementType::kBool, bytes_of(a).data(), bytes_of(b).data(), a.size(), out.data());
    return values_of<std::uint8_t>(out);
  };
  const std::vector<std::uint8_t> either{0, 1, 1, 1, 1, 1}, both{0, 0, 0, 1, 0, 1}, one{0, 1, 1, 0, 1, 0};
  for (const Operation operation : {Operation::kSum, Operation::kMax, Operation::kOr})
    EXPECT_EQ(run(operation), either);
  for (const Operation operation : {Operation::kProduct, Operation::kMin, Operation::kAnd}) {
    EXPECT_EQ(run(operation), both);
  }
  EXPECT_EQ(run(Operation::kXor), one);
  EXPECT_FALSE(can_average(ElementType::kBool));
}

TEST(Combine, ComplexNumbersAreAddedAndMultiplied) {
  using C = std::complex<double>;
  const std::vector<C> a{{1, 2}, {0, 1}}, b{{3, -1}, {0, 1}};
  std::vector<std::byte> out(a.size() * sizeof(C));
  combine(Operation::kSum, ElementType::kComplex128, bytes_of(a).data(), bytes_of(b).data(), 2, out.data());
  EXPECT_EQ(values_of<C>(out), (std::vector<C>{{4, 1}, {0, 2}}));
  combine(Operation::kProduct, ElementType::kComplex128, bytes_of(a).data(), bytes_of(b).data(), 2, out.data());
  EXPECT_EQ(values_of<C>(out), (std::vector<C>{{5, 5}, {-1, 0}}));
  divide(ElementType::kComplex128, out.data(), 2, 5);
  EXPECT_EQ(values_of<C>(out), (std::vector<C>{{1, 1}, {-0.2, 0}}));
  EXPECT_FALSE(is_defined(Operation::kMax, ElementType::kComplex64));
}

TEST(Combine, AllRanksAreFoldedPairwiseInRankOrder) {
  constexpr std::size_t kCount = 5001;
  for (const std::size_t world : {1, 2, 3, 5, 8, 11}) {
    std::vector<std::vector<std::byte>> ranks;
    std::vector<const std::byte*> payloads;
    Prng prng(tests::random_seed());
    for (std::size_t rank = 0; rank < world; ++rank) {
      std::vector<double> values(kCount);
      for (double& x : values) x = prng.unit() * std::pow(2, static_cast<double>(prng.below(60)));
      ranks.push_back(bytes_of(values));
    }
    for (const auto& rank : ranks) payloads.push_back(rank.data());
    std::vector<std::byte> out(kCount * sizeof(double));
    combine_all(Operation::kSum, ElementType::kFp64, payloads, kCount, out.data());
    const std::function<double(std::size_t, std::size_t, std::size_t)> fold = [&](std::size_t low, std::size_t high,
                                                                                  std::size_t i) {
      if (high - low == 1) return values_of<double>(ranks[low])[i];
      std::size_t half = 1;
      while (2 * half < high - low) half *= 2;
      return fold(low, low + half, i) + fold(low + half, high, i);
    };
    const auto got = values_of<double>(out);
    for (const std::size_t i : {std::size_t{0}, std::size_t{511}, std::size_t{512}, kCount - 1}) {
      ASSERT_EQ(got[i], fold(0, world, i)) << "world " << world << " element " << i;
    }
  }
}

}  // namespace
}  // namespace netfold::numbers

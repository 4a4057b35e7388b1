#include "numbers/combine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>
#include <utility>

#include "numbers/kernels.h"

namespace netfold::numbers {
namespace {

constexpr std::size_t kTileBytes = 4096;  // at home in the fastest cache, once for each level of the fold

constexpr std::array<std::pair<Operation, const char*>, 7> kNames{{{Operation::kSum, "sum"},
                                                                   {Operation::kProduct, "product"},
                                                                   {Operation::kMin, "min"},
                                                                   {Operation::kMax, "max"},
                                                                   {Operation::kAnd, "band"},
                                                                   {Operation::kOr, "bor"},
                                                                   {Operation::kXor, "bxor"}}};

template <class T>
inline constexpr bool kIsComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

struct Bool {  // any byte but 0 is true
  std::uint8_t byte;
};

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

using Wrapping = std::uint64_t;  // unsigned and wide, so that nothing overflows

template <Operation operation>
inline constexpr bool kIsOfBits =
    operation == Operation::kAnd || operation == Operation::kOr || operation == Operation::kXor;

template <Operation operation, class T>
T apply(T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) {
    const bool x = a.byte != 0, y = b.byte != 0;
    constexpr bool kIsAnd =
        operation == Operation::kProduct || operation == Operation::kMin || operation == Operation::kAnd;
    if constexpr (operation == Operation::kXor) return {static_cast<std::uint8_t>(x != y)};
    return {static_cast<std::uint8_t>(kIsAnd ? (x && y) : (x || y))};
  } else if constexpr (operation == Operation::kSum) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping(a) + Wrapping(b));
    return a + b;
  } else if constexpr (operation == Operation::kProduct) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping(a) * Wrapping(b));
    return a * b;
  } else if constexpr (kIsComplex<T> || (kIsOfBits<operation> && !std::is_integral_v<T>)) {
    return a;  // not defined
  } else if constexpr (operation == Operation::kMin) {
    return is_nan(a) || a < b ? a : b;
  } else if constexpr (operation == Operation::kMax) {
    return is_nan(a) || a > b ? a : b;
  } else if constexpr (operation == Operation::kAnd) {
    return static_cast<T>(a & b);
  } else if constexpr (operation == Operation::kOr) {
    return static_cast<T>(a | b);
  } else {
    return static_cast<T>(a ^ b);
  }
}

template <Operation operation, class T>
void loop(const std::byte* a, const std::byte* b, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * sizeof(T);
    store(out + at, apply<operation>(load<T>(a + at), load<T>(b + at)));
  }
}

template <class T>
void combine_as(Operation operation, const std::byte* a, const std::byte* b, std::size_t count, std::byte* out) {
  switch (operation) {
    case Operation::kSum: return loop<Operation::kSum, T>(a, b, count, out);
    case Operation::kProduct: return loop<Operation::kProduct, T>(a, b, count, out);
    case Operation::kMin: return loop<Operation::kMin, T>(a, b, count, out);
    case Operation::kMax: return loop<Operation::kMax, T>(a, b, count, out);
    case Operation::kAnd: return loop<Operation::kAnd, T>(a, b, count, out);
    case Operation::kOr: return loop<Operation::kOr, T>(a, b, count, out);
    case Operation::kXor: return loop<Operation::kXor, T>(a, b, count, out);
  }
}

// 16-bit floats, a tile at a time in FP32.
class Widened {
 public:
  explicit Widened(ElementType type)
      : widen_(type == ElementType::kFp16 ? kernels().fp16_to_fp32 : kernels().bf16_to_fp32),
        narrow_(type == ElementType::kFp16 ? kernels().fp32_to_fp16 : kernels().fp32_to_bf16) {}

  static constexpr std::size_t kTile = 256;
  using Tile = std::array<float, kTile>;

  static std::byte* bytes(Tile& tile) { return reinterpret_cast<std::byte*>(tile.data()); }
  void load(const std::byte* from, std::size_t count, Tile& to) const {
    widen_(reinterpret_cast<const std::uint16_t*>(from), count, to.data());
  }
  void store(const Tile& from, std::size_t count, std::byte* to) const {
    narrow_(from.data(), count, reinterpret_cast<std::uint16_t*>(to));
  }

 private:
  decltype(Kernels::fp16_to_fp32) widen_;
  decltype(Kernels::fp32_to_fp16) narrow_;
};

void combine_widened(Operation operation, ElementType type, const std::byte* a, const std::byte* b, std::size_t count,
                     std::byte* out) {
  const Widened widened(type);
  Widened::Tile x, y;
  for (std::size_t done = 0; done < count; done += Widened::kTile) {
    const std::size_t tile = std::min(Widened::kTile, count - done);
    widened.load(a + 2 * done, tile, x);
    widened.load(b + 2 * done, tile, y);
    combine_as<float>(operation, Widened::bytes(x), Widened::bytes(y), tile, Widened::bytes(x));
    widened.store(x, tile, out + 2 * done);
  }
}

template <class T>
void divide_as(std::byte* values, std::size_t count, std::uint32_t by) {
  for (std::size_t i = 0; i < count; ++i) {
    const T value = load<T>(values + i * sizeof(T));
    if constexpr (kIsComplex<T>) {
      store(values + i * sizeof(T), value / static_cast<typename T::value_type>(by));
    } else if constexpr (std::is_floating_point_v<T>) {
      store(values + i * sizeof(T), value / static_cast<T>(by));
    } else if constexpr (std::is_signed_v<T>) {
      store(values + i * sizeof(T), static_cast<T>(std::int64_t{value} / std::int64_t{by}));
    } else {
      store(values + i * sizeof(T), static_cast<T>(std::uint64_t{value} / std::uint64_t{by}));
    }
  }
}

void divide_widened(ElementType type, std::byte* values, std::size_t count, std::uint32_t by) {
  const Widened widened(type);
  Widened::Tile x;
  for (std::size_t done = 0; done < count; done += Widened::kTile) {
    const std::size_t tile = std::min(Widened::kTile, count - done);
    widened.load(values + 2 * done, tile, x);
    divide_as<float>(Widened::bytes(x), tile, by);
    widened.store(x, tile, values + 2 * done);
  }
}

bool is_complex(ElementType type) {
  return type == ElementType::kComplex64 || type == ElementType::kComplex128;
}

bool is_real(ElementType type) {
  return type == ElementType::kFp64 || type == ElementType::kFp32 || type == ElementType::kFp16 ||
         type == ElementType::kBf16;
}

}  // namespace

const char* name_of(Operation operation) {
  for (const auto& [each, name] : kNames) {
    if (each == operation) return name;
  }
  return "unknown";
}

std::optional<Operation> operation_named(std::string_view name) {
  for (const auto& [each, its] : kNames) {
    if (name == its) return each;
  }
  return std::nullopt;
}

bool is_defined(Operation operation, ElementType type) {
  if (operation == Operation::kSum || operation == Operation::kProduct) return true;
  if (is_complex(type)) return false;
  return operation == Operation::kMin || operation == Operation::kMax || !is_real(type);
}

bool can_average(ElementType type) {
  return type != ElementType::kBool;
}

void combine(Operation operation, ElementType type, const std::byte* a, const std::byte* b, std::size_t count,
             std::byte* out) {
  assert(is_defined(operation, type));
  switch (type) {
    case ElementType::kFp16:
    case ElementType::kBf16: return combine_widened(operation, type, a, b, count, out);
    case ElementType::kFp32: return combine_as<float>(operation, a, b, count, out);
    case ElementType::kFp64: return combine_as<double>(operation, a, b, count, out);
    case ElementType::kInt8: return combine_as<std::int8_t>(operation, a, b, count, out);
    case ElementType::kInt16: return combine_as<std::int16_t>(operation, a, b, count, out);
    case ElementType::kInt32: return combine_as<std::int32_t>(operation, a, b, count, out);
    case ElementType::kInt64: return combine_as<std::int64_t>(operation, a, b, count, out);
    case ElementType::kUint8: return combine_as<std::uint8_t>(operation, a, b, count, out);
    case ElementType::kUint16: return combine_as<std::uint16_t>(operation, a, b, count, out);
    case ElementType::kUint32: return combine_as<std::uint32_t>(operation, a, b, count, out);
    case ElementType::kUint64: return combine_as<std::uint64_t>(operation, a, b, count, out);
    case ElementType::kBool: return combine_as<Bool>(operation, a, b, count, out);
    case ElementType::kComplex64: return combine_as<std::complex<float>>(operation, a, b, count, out);
    case ElementType::kComplex128: return combine_as<std::complex<double>>(operation, a, b, count, out);
  }
}

namespace {

// Elements of `first_byte` on, at most a tile.
void combine_tile(Operation operation, ElementType type, std::span<const std::byte* const> payloads,
                  std::size_t first_byte, std::size_t count, std::byte* out) {
  if (payloads.size() == 1) {
    std::memcpy(out, payloads[0] + first_byte, count * size_bytes(type));
    return;
  }
  if (payloads.size() == 2) {
    return combine(operation, type, payloads[0] + first_byte, payloads[1] + first_byte, count, out);
  }
  const std::size_t half = std::bit_floor(payloads.size() - 1);
  combine_tile(operation, type, payloads.first(half), first_byte, count, out);
  alignas(64) std::array<std::byte, kTileBytes> later;
  combine_tile(operation, type, payloads.subspan(half), first_byte, count, later.data());
  combine(operation, type, out, later.data(), count, out);
}

}  // namespace

void combine_all(Operation operation, ElementType type, std::span<const std::byte* const> payloads, std::size_t count,
                 std::byte* out) {
  const std::size_t element_bytes = size_bytes(type), tile = kTileBytes / element_bytes;
  for (std::size_t done = 0; done < count; done += tile) {
    const std::size_t first_byte = done * element_bytes;
    combine_tile(operation, type, payloads, first_byte, std::min(tile, count - done), out + first_byte);
  }
}

void divide(ElementType type, std::byte* values, std::size_t count, std::uint32_t by) {
  assert(can_average(type));
  switch (type) {
    case ElementType::kFp16:
    case ElementType::kBf16: return divide_widened(type, values, count, by);
    case ElementType::kFp32: return divide_as<float>(values, count, by);
    case ElementType::kFp64: return divide_as<double>(values, count, by);
    case ElementType::kInt8: return divide_as<std::int8_t>(values, count, by);
    case ElementType::kInt16: return divide_as<std::int16_t>(values, count, by);
    case ElementType::kInt32: return divide_as<std::int32_t>(values, count, by);
    case ElementType::kInt64: return divide_as<std::int64_t>(values, count, by);
    case ElementType::kUint8: return divide_as<std::uint8_t>(values, count, by);
    case ElementType::kUint16: return divide_as<std::uint16_t>(values, count, by);
    case ElementType::kUint32: return divide_as<std::uint32_t>(values, count, by);
    case ElementType::kUint64: return divide_as<std::uint64_t>(values, count, by);
    case ElementType::kComplex64: return divide_as<std::complex<float>>(values, count, by);
    case ElementType::kComplex128: return divide_as<std::complex<double>>(values, count, by);
    case ElementType::kBool: return;
  }
}

}  // namespace netfold::numbers

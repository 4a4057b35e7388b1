// Numbers that kernels get wrong: what every test of a table draws from.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/prng.h"
#include "numbers/kernels.h"

namespace netfold::numbers::testing {

inline float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// "any NaN result counts as equal to any other NaN" (spec section 3); everything else to the bit, zeros' signs too.
inline bool same(float a, float b) {
  return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b));
}

// How a buffer of floats is filled.
enum class Mix : std::uint8_t {
  kAnyBits,     // every pattern, NaN and Inf among them
  kGradients,   // like gradients: a bell of magnitudes around a scale, some zeros
  kTies,        // whole numbers and halves of one scale: ties to even, clamps at the ends
  kTiny,        // subnormals, zeros and exponents around the mantissa's size
  kHuge,        // next to the largest finite number
  kFewSpecial,  // gradients with a rare NaN or Inf
  kCount,
};

inline float sample(Prng& prng, Mix mix) {
  const std::uint32_t sign = prng.chance(0.5) ? 0x80000000u : 0;
  switch (mix) {
    case Mix::kAnyBits: return from_bits(static_cast<std::uint32_t>(prng.next()));
    case Mix::kGradients:
      if (prng.chance(0.05)) return from_bits(sign);
      return static_cast<float>((prng.unit() + prng.unit() + prng.unit() - 1.5) * 1e-3);
    case Mix::kTies: return (static_cast<float>(prng.below(513)) - 256.0f) * 0.5f;
    case Mix::kTiny: return from_bits(sign | static_cast<std::uint32_t>(prng.below(10u << 23)));
    case Mix::kHuge: return from_bits(sign | static_cast<std::uint32_t>(0x7f7fffff - prng.below(3u << 23)));
    case Mix::kFewSpecial:
      if (prng.chance(0.01)) return from_bits(sign | 0x7f800000u | static_cast<std::uint32_t>(prng.below(2)) << 22);
      return sample(prng, Mix::kGradients);
    case Mix::kCount: break;
  }
  return 0;
}

// Each block of eight has a mix of its own, half of the time.
inline std::vector<float> samples(Prng& prng, std::size_t count) {
  std::vector<float> values(count);
  const auto any_mix = [&] { return static_cast<Mix>(prng.below(static_cast<std::uint64_t>(Mix::kCount))); };
  const bool is_mixed = prng.chance(0.5);
  Mix mix = any_mix();
  for (std::size_t i = 0; i < count; ++i) {
    if (is_mixed && i % 8 == 0) mix = any_mix();
    values[i] = sample(prng, mix);
  }
  return values;
}

inline BfpShape any_shape(Prng& prng) {
  return {static_cast<std::uint8_t>(8u << prng.below(5)), static_cast<std::uint8_t>(2 + prng.below(6))};
}

inline std::vector<BfpShape> all_shapes() {
  std::vector<BfpShape> shapes;
  for (unsigned block = 8; block <= 128; block *= 2) {
    for (unsigned mantissa = 2; mantissa <= 7; ++mantissa) {
      shapes.push_back({static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)});
    }
  }
  return shapes;
}

// Bytes at an offset that no type is aligned to, with a guard after them that must stay as it was.
class Unaligned {
 public:
  Unaligned(std::size_t size_bytes, std::size_t offset) : size_bytes_(size_bytes), offset_(offset) {
    bytes_.assign(offset + size_bytes + kGuard, std::byte{0xa5});
  }
  Unaligned(const void* from, std::size_t size_bytes, std::size_t offset) : Unaligned(size_bytes, offset) {
    if (size_bytes > 0) std::memcpy(data(), from, size_bytes);
  }

  std::byte* data() { return bytes_.data() + offset_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }
  std::vector<std::byte> content() const {
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(offset_);
    return {begin, begin + static_cast<std::ptrdiff_t>(size_bytes_)};
  }
  std::vector<float> floats() const {
    std::vector<float> values(size_bytes_ / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes_.data() + offset_, values.size() * sizeof(float));
    return values;
  }
  bool guard_is_whole() const {
    for (std::size_t i = offset_ + size_bytes_; i < bytes_.size(); ++i) {
      if (bytes_[i] != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  std::size_t size_bytes_;
  std::size_t offset_;
  std::vector<std::byte> bytes_;
};

// The tables to hold against the reference on this machine.
inline std::vector<const Kernels*> fast_tables() {
  std::vector<const Kernels*> tables;
  for (const Kernels* table : all_kernels()) {
    if (table->is_supported() && table != all_kernels().back()) tables.push_back(table);
  }
  return tables;
}

inline const Kernels& reference() {
  return *all_kernels().back();
}

// Where two buffers of floats differ first, for a failure's message; empty if nowhere.
inline std::string difference(const std::vector<float>& expected, const std::vector<float>& got) {
  if (expected.size() != got.size()) return "sizes differ";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (same(expected[i], got[i])) continue;
    char text[96];
    std::snprintf(text, sizeof text, "element %zu: expected %08x, got %08x", i, bits_of(expected[i]), bits_of(got[i]));
    return text;
  }
  return {};
}

inline std::string difference(const std::vector<std::byte>& expected, const std::vector<std::byte>& got) {
  if (expected.size() != got.size()) return "sizes differ";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == got[i]) continue;
    char text[96];
    std::snprintf(text, sizeof text, "byte %zu: expected %02x, got %02x", i, static_cast<unsigned>(expected[i]),
                  static_cast<unsigned>(got[i]));
    return text;
  }
  return {};
}

}  // namespace netfold::numbers::testing

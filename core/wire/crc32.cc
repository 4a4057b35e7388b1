#include "wire/crc32.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace netfold::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320;  // 0x04c11db7 with its bits reflected

constexpr std::uint32_t add_byte(std::uint32_t state, std::uint8_t byte) {
  state ^= byte;
  for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0);
  return state;
}

// The specification.
std::uint32_t bit_by_bit(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t state = ~before;
  for (const std::byte byte : bytes) state = add_byte(state, static_cast<std::uint8_t>(byte));
  return ~state;
}

// kTables[k][b] is what byte b contributes when k more bytes follow it (slicing by eight).
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) tables[0][byte] = add_byte(0, static_cast<std::uint8_t>(byte));
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

std::uint32_t by_eight(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t state = ~before;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    static_assert(std::endian::native == std::endian::little);
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][word >> (8 * i) & 0xff];
  }
  for (const std::byte byte : bytes) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<std::uint32_t>(byte)) & 0xff];
  }
  return ~state;
}

bool everywhere() {
  return true;
}

constexpr Crc32 kByEight{"by eight", everywhere, by_eight};

const std::vector<Crc32>& present() {
  static const std::vector<Crc32> all = [] {
    std::vector<Crc32> found;
    for (const Crc32* way : {crc32_vclmul(), crc32_clmul(), crc32_by_eight()}) {
      if (way != nullptr) found.push_back(*way);
    }
    found.push_back({"bit by bit", everywhere, bit_by_bit});
    return found;
  }();
  return all;
}

const Crc32& fastest() {
  for (const Crc32& way : present()) {
    if (way.is_supported()) return way;
  }
  return present().back();
}

}  // namespace

Crc32Shift::Crc32Shift(std::size_t size_bytes) {
  std::array<std::uint32_t, 32> of_bit;
  for (std::size_t bit = 0; bit < of_bit.size(); ++bit) {
    std::uint32_t state = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < size_bytes; ++i) state = (state >> 8) ^ kTables[0][state & 0xff];
    of_bit[bit] = state;
  }
  for (std::size_t place = 0; place < 4; ++place) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      tables_[place][byte] = 0;
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) tables_[place][byte] ^= of_bit[8 * place + bit];
      }
    }
  }
}

const Crc32* crc32_by_eight() {
  return &kByEight;
}

std::span<const Crc32> all_crc32() {
  return present();
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  static const Crc32& chosen = fastest();
  return chosen.compute(bytes, before);
}

}  // namespace netfold::wire

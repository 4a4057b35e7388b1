// CRC-32 of IEEE 802.3 (polynomial 0x04c11db7, bits reflected, all ones before and after): an Ethernet frame's check
// sequence and the ICRC of RoCE. Both travel least significant byte first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace netfold::wire {

// The check of `bytes` behind bytes whose check is `before` (0: nothing before).
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Turns the check of bytes into what it contributes to the check of those bytes with `size_bytes` more behind them: the
// two checks are then added (exclusive or). Where many messages end alike, their end is computed once.
class Crc32Shift {
 public:
  explicit Crc32Shift(std::size_t size_bytes);
  std::uint32_t operator()(std::uint32_t check) const {
    return tables_[0][check & 0xff] ^ tables_[1][check >> 8 & 0xff] ^ tables_[2][check >> 16 & 0xff] ^
           tables_[3][check >> 24];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> tables_;  // by byte of the check: it is linear
};

// The ways to compute it, fastest first; the last is the specification, one bit at a time, and the others equal it.
struct Crc32 {
  const char* name;
  bool (*is_supported)();  // by this machine
  std::uint32_t (*compute)(std::span<const std::byte> bytes, std::uint32_t before);
};
std::span<const Crc32> all_crc32();

// Each a file; null where the compiler has not its instructions.
const Crc32* crc32_vclmul();
const Crc32* crc32_clmul();
const Crc32* crc32_by_eight();  // everywhere

}  // namespace netfold::wire

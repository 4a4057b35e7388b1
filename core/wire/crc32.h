// CRC-32 of IEEE 802.3 (polynomial 0x04c11db7, bits reflected, all ones before and after): an Ethernet frame's check
// sequence and the ICRC of RoCE. Both travel least significant byte first. ISA-L computes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace netfold::wire {

// The check of `bytes` behind bytes whose check is `before` (0: nothing before).
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Turns the check of bytes into its part of the check of those bytes with `size_bytes` more behind them: the exclusive
// or of that part and of the check of the `size_bytes` is the check of all. So an end that many messages share is
// checked once.
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

}  // namespace netfold::wire

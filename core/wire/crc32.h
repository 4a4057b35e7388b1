// CRC-32 of IEEE 802.3 (polynomial 0x04c11db7, bits reflected, all ones before and after): an Ethernet frame's check
// sequence and the ICRC of RoCE. Both travel least significant byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace netfold::wire {

// The check of `bytes` behind bytes whose check is `before` (0: nothing before).
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

// The ways to compute it, fastest first; the last is the specification, one bit at a time, and the others equal it.
struct Crc32 {
  const char* name;
  bool (*is_supported)();  // by this machine
  std::uint32_t (*compute)(std::span<const std::byte> bytes, std::uint32_t before);
};
std::span<const Crc32> all_crc32();

// The CRC of a message is that of 16 bytes once it is folded down to them; nullptr where the compiler has no carry-less
// multiplication (crc32_clmul.cc).
const Crc32* crc32_clmul();

}  // namespace netfold::wire

// POLYVAL of RFC 8452: the hash of a packet whose key nobody else knows. It is a polynomial over a field of 2^128
// elements, with the packet's blocks as coefficients, at the point that is the key. Two packets that were chosen
// without the key have the same hash with a probability of at most blocks / 2^128. A hash itself must stay secret:
// tag.h hides it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace netfold::wire {

using Block = std::array<std::byte, 16>;

// Powers of the key. So many blocks are multiplied by powers of their own and summed before the sum is reduced, which
// costs as much as several blocks.
constexpr std::size_t kPowers = 128;
struct Powers {
  alignas(64) std::array<std::array<std::uint64_t, 2>, kPowers> powers;  // from the highest to the key itself
  alignas(64) std::array<std::array<std::uint64_t, 2>, kPowers> halves;  // both halves of each summed, twice
};

// The same function for each instruction set.
struct PolyvalKernel {
  const char* name;
  bool (*is_supported)();
  void (*prepare)(const Block& key, Powers& powers);
  // Of `head` (a multiple of 16 bytes), `payload` with zeros up to a multiple of 16 bytes, and a block that says how
  // many bits each has, as AES-GCM-SIV has it of additional data and plaintext.
  Block (*hash)(const Powers& powers, std::span<const std::byte> head, std::span<const std::byte> payload);
};

// Fastest first; the last, bit by bit, is the specification.
std::span<const PolyvalKernel* const> all_polyval_kernels();
// The first that this machine can run.
const PolyvalKernel& polyval_kernel();

// Of polyval_simd.cc.
std::vector<const PolyvalKernel*> simd_polyval_kernels();

}  // namespace netfold::wire

// A hash of a payload with a secret key. Two payloads that were chosen without the key have the same
// hash with a probability of at most 2^-63. A hash must stay secret: tag.h hides it.
//
// It has two levels, as VMAC's. CLNH (D. Lemire and O. Kaser, "Faster 64-bit universal hashing using carry-less
// multiplications", 2015, section 4) makes a block of each piece of 1024 bytes: of each 16 bytes, the sum with as many
// bytes of the key; its lower half times its upper half; the sum of all. This is one multiplication for 16 bytes.
// POLYVAL (RFC 8452, section 3) is over these blocks and the payload's length. All sums and products are of
// polynomials over bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace netfold::wire {

using Block = std::array<std::uint64_t, 2>;  // bit i is the coefficient of x^i

constexpr std::size_t kBlockBytes = sizeof(Block);
constexpr std::size_t kPieceBytes = 1024;
constexpr std::size_t kHashedBytesMax = 65536;
constexpr std::size_t kHashedBlocksMax = kHashedBytesMax / kPieceBytes + 1;  // of POLYVAL

// The powers of POLYVAL's key. Each block is multiplied by one of its own, and only the sum is reduced.
// From the highest to the key itself.
using Powers = std::array<Block, kHashedBlocksMax>;

struct HashKey {
  alignas(64) std::array<Block, kPieceBytes / kBlockBytes> words;  // of CLNH
  Powers powers;
};

// The same functions for each instruction set.
struct HashKernel {
  const char* name;
  bool (*is_supported)();
  void (*prepare)(const Block& key, Powers& powers);
  // Of at most kHashedBytesMax bytes.
  Block (*hash)(const HashKey& key, std::span<const std::byte> payload);
};

// Both levels, bit by bit. Of 1 to kPieceBytes bytes; zeros fill the last block.
Block clnh(const HashKey& key, std::span<const std::byte> piece);
// Of 1 to kHashedBlocksMax blocks; `point` is POLYVAL's key.
Block polyval(const Block& point, std::span<const Block> blocks);

// Fastest first; the last, bit by bit, is the specification.
std::span<const HashKernel* const> all_hash_kernels();
// The first that this machine can run.
const HashKernel& hash_kernel();

// Of universal_hash_simd.cc.
std::vector<const HashKernel*> simd_hash_kernels();

}  // namespace netfold::wire

#include "numbers/bfp.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::numbers {

namespace {

constexpr std::size_t kBlocksTile = 256;  // elements: a whole number of blocks of every shape, and small enough for L1
constexpr std::size_t kLevels = std::bit_width(kWorkersMax) + 1;

// The tree of fold.h as a binary counter: level i of the stack is the sum of a whole subtree. Two subtrees of the same
// size merge as soon as the right one is complete, just as a carry runs through a counter's low bits.
void fold_tile(const Kernels& with, BfpShape shape, Payloads payloads, std::size_t offset_bytes, std::size_t count,
               float* out) {
  alignas(64) float levels[kLevels][kBlocksTile];
  std::size_t depth = 0;
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    const std::byte* payload = payloads[rank] + offset_bytes;
    if ((rank & 1) == 0) {
      with.bfp_decode(shape, payload, count, levels[depth++]);
      continue;
    }
    with.bfp_decode_add(shape, payload, count, levels[depth - 1]);
    for (std::size_t carry = rank >> 1; (carry & 1) != 0; carry >>= 1, --depth) {
      with.add_fp32(levels[depth - 2], levels[depth - 1], count, levels[depth - 2]);
    }
  }
  for (; depth > 1; --depth) with.add_fp32(levels[depth - 2], levels[depth - 1], count, levels[depth - 2]);
  std::memcpy(out, levels[0], count * sizeof(float));
}

}  // namespace

void fold_bfp_by_tiles(const Kernels& with, BfpShape shape, Payloads payloads, std::size_t first, std::size_t count,
                       float* out) {
  assert(!payloads.empty() && payloads.size() <= kWorkersMax && first % shape.block == 0);
  for (std::size_t done = 0; done < count; done += kBlocksTile) {
    const std::size_t offset_bytes = (first + done) / shape.block * bfp_block_bytes(shape);
    fold_tile(with, shape, payloads, offset_bytes, std::min(kBlocksTile, count - done), out + done);
  }
}

}  // namespace netfold::numbers

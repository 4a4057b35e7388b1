// The sum of one chunk over workers, pairwise in rank order:
//   fold(lo, hi) = x_lo if one; else fold(lo, lo+p) + fold(lo+p, hi), p = the largest power of two below the number.
// fp16 and bf16 are widened to FP32, folded, and rounded once; bfp is decoded, folded in FP32 and encoded once;
// int32 wraps. Arrival order never shows: payloads are given by rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "numbers/format.h"
#include "numbers/kernels.h"

namespace netfold::numbers {

// Which side of a fold has sums that are not rounded to the wire's format: fp32, or int32. A switch below another one
// rounds nothing, and what it sends up is folded as it is (PROTOCOL.md, "Trees of switches").
struct Unrounded {
  bool in = false, out = false;
};

// Working memory of a fold, made once (no allocation on the packet path) for chunks of up to `count_max` elements and
// up to `workers_max` contributions. One thread at a time.
class Folder {
 public:
  Folder(std::size_t count_max, std::size_t workers_max, const Kernels& with = kernels());

  // payloads[rank], each encoded_bytes(wire, count) long and well formed; `out` as long. `out` overlaps no payload.
  // With `unrounded`, that side's payloads have 4 bytes an element.
  void fold(WireFormat wire, std::span<const std::byte* const> payloads, std::size_t count, std::byte* out,
            Unrounded unrounded = {});

 private:
  void sum(WireFormat wire, std::span<const std::byte* const> payloads, std::size_t first, std::size_t count,
           float* out) const;
  void round(WireFormat wire, std::size_t count, std::byte* out) const;

  const Kernels* kernels_;
  std::size_t count_max_;
  std::size_t workers_max_;
  std::vector<float> tile_;  // fp32 sums of the part of the chunk being folded, before they are rounded to the wire
};

}  // namespace netfold::numbers

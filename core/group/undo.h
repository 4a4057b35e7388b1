// What a collective overwrites in place, so that a failed one can put it back. Saving piece by piece costs the same
// memory traffic as a copy at the end, but hides it behind the network. A result of its own needs no saving: what was
// handed over is still there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "group/scratch_pool.h"

namespace netfold::group {

// Whether two pieces of memory, whatever they are of, have bytes in common.
inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto a_at = reinterpret_cast<std::uintptr_t>(a), b_at = reinterpret_cast<std::uintptr_t>(b);
  return a_at < b_at + b_bytes && b_at < a_at + a_bytes;
}

class Undo {
 public:
  // `out` of `size_bytes` will be overwritten, piece by piece.
  void start(void* out, std::size_t size_bytes, ScratchPool& pool) {
    out_ = static_cast<std::byte*>(out);
    saved_ = pool.take(size_bytes);
  }
  using Copy = void (*)(void* to, const void* from, std::size_t size_bytes);

  // Before these bytes are overwritten; each byte once. Does nothing unless started.
  void save(std::size_t first_byte, std::size_t size_bytes, Copy copy = &plain_copy) {
    if (out_ == nullptr || size_bytes == 0) return;
    copy(saved_.bytes.get() + first_byte, out_ + first_byte, size_bytes);
    if (!pieces_.empty() && pieces_.back().first + pieces_.back().second == first_byte) {
      pieces_.back().second += size_bytes;
    } else {
      pieces_.push_back({first_byte, size_bytes});
    }
  }

  // Where the bytes saved stand, as they stood in `out`.
  const std::byte* saved() const { return saved_.bytes.get(); }

  // What was saved, back where it was.
  void put_back() {
    for (const auto& [first_byte, size_bytes] : pieces_) {
      std::memcpy(out_ + first_byte, saved_.bytes.get() + first_byte, size_bytes);
    }
    pieces_.clear();
  }

  // Once nothing need be put back any more.
  void finish(ScratchPool& pool) {
    pool.give_back(std::exchange(saved_, {}));
    pieces_.clear();
    out_ = nullptr;
  }

 private:
  static void plain_copy(void* to, const void* from, std::size_t size_bytes) { std::memcpy(to, from, size_bytes); }

  std::byte* out_ = nullptr;
  ScratchBuffer saved_;
  std::vector<std::pair<std::size_t, std::size_t>> pieces_;  // first byte and size
};

}  // namespace netfold::group

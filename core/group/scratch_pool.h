// Memory for saved bytes and partial sums, kept between all-reduces: fresh memory costs a page fault every page. What
// nobody has taken for long goes back to the system, so that a peak does not stay for the life of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"

namespace netfold::group {

struct ScratchBuffer {
  Buffer bytes;
  std::size_t size_bytes = 0;
  std::uint64_t taken_at = 0;  // by the pool's count
};

class ScratchPool {
 public:
  // A buffer is kept while at most so many others have been taken since it was. More than a step has tensors.
  static constexpr std::uint64_t kKeptFor = 4096;

  // At least `size_bytes`, not initialised. The smallest that fits: if small tensors took large buffers, large tensors
  // would need new ones until every buffer was large. Of several, the one given back last: the others may be too many.
  ScratchBuffer take(std::size_t size_bytes) {
    ++takes_;
    auto best = buffers_.end();
    for (auto buffer = buffers_.begin(); buffer != buffers_.end(); ++buffer) {
      if (buffer->size_bytes < size_bytes) continue;
      if (best == buffers_.end() || buffer->size_bytes <= best->size_bytes) best = buffer;
    }
    if (best != buffers_.end()) {
      ScratchBuffer taken = std::move(*best);
      buffers_.erase(best);
      taken.taken_at = takes_;
      return taken;
    }
    if (!buffers_.empty()) buffers_.pop_back();  // too small: one that fits takes its place
    return {make_buffer(size_bytes), size_bytes, takes_};
  }
  void give_back(ScratchBuffer buffer) {
    if (buffer.bytes) buffers_.push_back(std::move(buffer));
    std::erase_if(buffers_, [&](const ScratchBuffer& each) { return takes_ - each.taken_at > kKeptFor; });
  }
  std::size_t size_bytes() const {  // of what is kept
    std::size_t sum = 0;
    for (const ScratchBuffer& each : buffers_) sum += each.size_bytes;
    return sum;
  }

 private:
  std::vector<ScratchBuffer> buffers_;
  std::uint64_t takes_ = 0;
};

}  // namespace netfold::group

// Memory for saved bytes and partial sums, kept between all-reduces: fresh memory costs a page fault every 4 KiB.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace netfold::group {

struct ScratchBuffer {
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size_bytes = 0;
};

class ScratchPool {
 public:
  // At least `size_bytes`, not initialised. The smallest that fits: if small tensors took large buffers, large tensors
  // would need new ones until every buffer was large.
  ScratchBuffer take(std::size_t size_bytes) {
    auto best = buffers_.end();
    for (auto buffer = buffers_.begin(); buffer != buffers_.end(); ++buffer) {
      if (buffer->size_bytes < size_bytes) continue;
      if (best == buffers_.end() || buffer->size_bytes < best->size_bytes) best = buffer;
    }
    if (best != buffers_.end()) {
      ScratchBuffer taken = std::move(*best);
      buffers_.erase(best);
      return taken;
    }
    if (!buffers_.empty()) buffers_.pop_back();  // too small: one that fits takes its place
    return {std::make_unique_for_overwrite<std::byte[]>(size_bytes), size_bytes};
  }
  void give_back(ScratchBuffer buffer) {
    if (buffer.bytes) buffers_.push_back(std::move(buffer));
  }

 private:
  std::vector<ScratchBuffer> buffers_;
};

}  // namespace netfold::group

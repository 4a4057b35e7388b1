// Memory for results and copies: aligned for whole-cache-line stores, in huge pages where it is large, not zeroed.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/memory_units.h"

namespace netfold {

struct FreeBuffer {
  void operator()(void* buffer) const { std::free(buffer); }
};
using Buffer = std::unique_ptr<std::byte, FreeBuffer>;

inline Buffer make_buffer(std::size_t size_bytes) {
  constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  const std::size_t alignment = size_bytes >= 2 * kHugePageBytes ? kHugePageBytes : kCacheLineBytes;
  const std::size_t rounded = (size_bytes / alignment + 1) * alignment;  // an empty result has memory of its own, too
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePageBytes) madvise(memory, rounded, MADV_HUGEPAGE);  // advice: ordinary pages do as well
  return Buffer(static_cast<std::byte*>(memory));
}

}  // namespace netfold

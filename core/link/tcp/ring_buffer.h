// The bytes of one direction of a connection, until its user or the kernel takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "link/mirrored_memory.h"

namespace netfold::link {

// Positions only grow; a position modulo the size is a place.
struct RingBuffer {
  std::unique_ptr<MirroredMemory> memory;
  std::uint64_t head = 0, tail = 0;

  std::size_t size() const { return memory->size_bytes(); }
  std::size_t used() const { return head - tail; }
  std::size_t free() const { return size() - used(); }
  std::byte* first_used() const { return at(tail); }
  std::byte* first_free() const { return at(head); }
  std::byte* at(std::uint64_t position) const { return memory->data() + position % size(); }
};

}  // namespace netfold::link

// Shared memory between two processes of one machine as a stream link: a ring for each direction, with one writer and
// one reader, and no system call unless the other side sleeps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "link/shm/doorbell.h"
#include "link/stream_link.h"

namespace netfold::link {

// The memory of both rings. It has no name: the other process is handed its descriptor (handover.h).
class ShmSegment {
 public:
  // Null if the machine has no room for it. `ring_bytes` is a power of two and a multiple of a page.
  static std::unique_ptr<ShmSegment> create(std::size_t ring_bytes);
  // Another process's. Takes ownership of the descriptor. Null if it is invalid, or not of such a segment.
  static std::unique_ptr<ShmSegment> open(int descriptor);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  std::size_t ring_bytes() const { return ring_bytes_; }
  int descriptor() const { return descriptor_; }

 private:
  ShmSegment(int descriptor, std::size_t ring_bytes) : descriptor_(descriptor), ring_bytes_(ring_bytes) {}

  int descriptor_;
  std::size_t ring_bytes_;
};

// `is_creator` differs on the two sides: it says which ring is whose. `peer` is rung when the other side sleeps.
// Null if the kernel cannot map the rings.
std::unique_ptr<StreamLink> shm_stream(const ShmSegment& segment, bool is_creator, std::shared_ptr<Doorbell> peer);

}  // namespace netfold::link

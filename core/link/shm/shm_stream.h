// Shared memory between two processes of one machine as a stream link: a ring for each direction, with one writer and
// one reader, and no system call unless the other side sleeps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "link/shm/doorbell.h"
#include "link/stream_link.h"

namespace netfold::link {

// The memory of both rings. Whoever can open it by its name is on the same machine.
class ShmSegment {
 public:
  // Null if the machine has no room for it. `ring_bytes` is a power of two and a multiple of a page.
  static std::unique_ptr<ShmSegment> create(std::size_t ring_bytes);
  // Null if there is no such segment here, or it holds another token.
  static std::unique_ptr<ShmSegment> find(const std::string& name, std::uint64_t token);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t token() const { return token_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  int descriptor() const { return descriptor_; }
  void forget_name();  // once the peer has found it: then nothing stays behind, whoever dies

 private:
  ShmSegment(std::string name, int descriptor, std::uint64_t token, std::size_t ring_bytes, bool is_named)
      : name_(std::move(name)), descriptor_(descriptor), token_(token), ring_bytes_(ring_bytes), is_named_(is_named) {}

  std::string name_;
  int descriptor_;
  std::uint64_t token_;
  std::size_t ring_bytes_;
  bool is_named_;
};

// `is_creator` differs on the two sides: it says which ring is whose. `peer` is rung when the other side sleeps.
// Null if the kernel cannot map the rings.
std::unique_ptr<StreamLink> shm_stream(const ShmSegment& segment, bool is_creator, std::shared_ptr<Doorbell> peer);

}  // namespace netfold::link

// Memory that is mapped twice, one copy behind the other: a ring buffer in it has no seam, and any part of it is one
// piece to read or write.
#pragma once

#include <cstddef>
#include <memory>

namespace netfold::link {

class MirroredMemory {
 public:
  // `size_bytes` of the file from `offset` on, both multiples of a page. Null if the kernel says no.
  static std::unique_ptr<MirroredMemory> map(int descriptor, std::size_t offset, std::size_t size_bytes);
  static std::unique_ptr<MirroredMemory> allocate(std::size_t size_bytes);  // of its own
  ~MirroredMemory();
  MirroredMemory(const MirroredMemory&) = delete;
  MirroredMemory& operator=(const MirroredMemory&) = delete;

  std::byte* data() const { return data_; }  // of 2 * size_bytes()
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  MirroredMemory(std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_;
  std::size_t size_bytes_;
};

}  // namespace netfold::link

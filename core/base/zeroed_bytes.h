// Bytes that are zero, and that take no memory before they are written: for large sizes the kernel maps a page of zeros
// at the first touch. So the size that a peer asks for costs nothing until it is used.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace netfold {

class ZeroedBytes {
 public:
  // Throws std::bad_alloc.
  explicit ZeroedBytes(std::size_t size) : size_(size) {
    if (size == 0) return;
    bytes_.reset(static_cast<std::byte*>(std::calloc(size, 1)));
    if (!bytes_) throw std::bad_alloc();
  }

  std::byte* data() { return bytes_.get(); }
  bool empty() const { return size_ == 0; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  std::size_t size_;
  std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace netfold

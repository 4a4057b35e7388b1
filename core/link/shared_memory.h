// Memory without a name that is handed to another process as a descriptor. Nothing stays behind, whoever dies.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "link/descriptor.h"

namespace netfold::link {

// A memfd that no process can shrink: memory that vanishes would kill every process that touches it. It may grow unless
// `is_fixed`.
Result<Descriptor> make_shared_memory(std::size_t size_bytes, bool is_fixed);
// The same memory for a process that must not write it.
Result<Descriptor> for_reading(const Descriptor& memory);
bool cannot_shrink(const Descriptor& memory);

class Mapping {
 public:
  static Result<Mapping> of(const Descriptor& memory, std::size_t offset, std::size_t size_bytes, bool writable);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  Mapping(std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_;
  std::size_t size_bytes_;
};

}  // namespace netfold::link

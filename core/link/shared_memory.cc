#include "link/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace netfold::link {

Result<Descriptor> make_shared_memory(std::size_t size_bytes, bool is_fixed) {
  Descriptor memory(memfd_create("netfold", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int seals = F_SEAL_SHRINK | (is_fixed ? F_SEAL_GROW | F_SEAL_SEAL : 0);
  if (memory.get() < 0 || ftruncate(memory.get(), static_cast<off_t>(size_bytes)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, seals) != 0) {
    return tl::unexpected(system_error("cannot make memory to share with another process"));
  }
  return memory;
}

Result<Descriptor> for_reading(const Descriptor& memory) {
  const std::string path = fmt::format("/proc/self/fd/{}", memory.get());
  Descriptor opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.get() < 0) return tl::unexpected(system_error("cannot share memory for reading"));
  return opened;
}

bool cannot_shrink(const Descriptor& memory) {
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Result<Mapping> Mapping::of(const Descriptor& memory, std::size_t offset, std::size_t size_bytes, bool writable) {
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const data = mmap(nullptr, size_bytes, access, MAP_SHARED, memory.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) return tl::unexpected(system_error("cannot map memory that two processes share"));
  return Mapping(static_cast<std::byte*>(data), size_bytes);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

}  // namespace netfold::link

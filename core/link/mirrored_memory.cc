#include "link/mirrored_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace netfold::link {

std::unique_ptr<MirroredMemory> MirroredMemory::map(int descriptor, std::size_t offset, std::size_t size_bytes) {
  void* const room = mmap(nullptr, 2 * size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  auto* const data = static_cast<std::byte*>(room);
  for (std::byte* const half : {data, data + size_bytes}) {
    if (mmap(half, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor,
             static_cast<off_t>(offset)) == MAP_FAILED) {
      munmap(room, 2 * size_bytes);
      return nullptr;
    }
  }
  return std::unique_ptr<MirroredMemory>(new MirroredMemory(data, size_bytes));
}

std::unique_ptr<MirroredMemory> MirroredMemory::allocate(std::size_t size_bytes) {
  const int descriptor = memfd_create("netfold", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<MirroredMemory> memory;
  if (ftruncate(descriptor, static_cast<off_t>(size_bytes)) == 0) memory = map(descriptor, 0, size_bytes);
  close(descriptor);
  return memory;
}

MirroredMemory::~MirroredMemory() {
  munmap(data_, 2 * size_bytes_);
}

}  // namespace netfold::link

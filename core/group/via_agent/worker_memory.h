// Another process's memory, read and written as a device does by DMA: the worker's threads take no part in it. The
// kernel checks every address, so a request with a wrong one is an error and no more.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace netfold::group {

class WorkerMemory {
 public:
  // kSystem if the process is gone.
  static Result<WorkerMemory> of(pid_t pid);
  ~WorkerMemory();
  WorkerMemory(WorkerMemory&& other) noexcept;
  WorkerMemory& operator=(WorkerMemory&&) = delete;

  // kSystem if the process is gone, the memory is not there, or the kernel does not let us; it says what to do.
  Result<void> read(std::uint64_t address, std::size_t size_bytes, std::byte* to) const;
  Result<void> write(std::uint64_t address, std::size_t size_bytes, const std::byte* from) const;

  pid_t pid() const { return pid_; }
  int descriptor() const { return descriptor_; }  // readable once the process has ended
  bool is_alive() const;

 private:
  WorkerMemory(pid_t pid, int descriptor) : pid_(pid), descriptor_(descriptor) {}
  template <class Move>
  Result<void> move(const char* verb, std::uint64_t address, std::size_t size_bytes, Move move_some) const;

  pid_t pid_;
  int descriptor_;  // a pidfd: the number may later belong to another process
};

}  // namespace netfold::group

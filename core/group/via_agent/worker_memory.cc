#include "group/via_agent/worker_memory.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace netfold::group {
namespace {

// The reason why access is refused, as far as it can be found.
std::string advice() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (file >> scope && scope >= 2) {
    return fmt::format(
        "this machine forbids it (kernel.yama.ptrace_scope is {}): `sysctl kernel.yama.ptrace_scope=1` as root allows "
        "it to processes that a worker names, or use NETFOLD_ENGINE=thread",
        scope);
  }
  return "agent and worker must run as the same user, in the same container, and the container must allow "
         "process_vm_readv (docker: --cap-add SYS_PTRACE); or use NETFOLD_ENGINE=thread";
}

}  // namespace

Result<WorkerMemory> WorkerMemory::of(pid_t pid) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor >= 0) return WorkerMemory(pid, descriptor);
  return tl::unexpected(system_error(fmt::format("cannot watch the worker, process {}", pid)));
}

WorkerMemory::~WorkerMemory() {
  if (descriptor_ >= 0) close(descriptor_);
}

WorkerMemory::WorkerMemory(WorkerMemory&& other) noexcept
    : pid_(other.pid_), descriptor_(std::exchange(other.descriptor_, -1)) {}

bool WorkerMemory::is_alive() const {
  pollfd ended{descriptor_, POLLIN, 0};
  return poll(&ended, 1, 0) == 0;
}

template <class Move>
Result<void> WorkerMemory::move(const char* verb, std::uint64_t address, std::size_t size_bytes, Move move_some) const {
  for (std::size_t done = 0; done < size_bytes;) {
    if (!is_alive()) return fail(ErrorCode::kSystem, fmt::format("the worker, process {}, has ended", pid_));
    const ssize_t moved = move_some(done);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
      continue;
    }
    if (moved < 0 && errno == EINTR) continue;
    const int error = moved == 0 ? EFAULT : errno;
    if (error == EPERM || error == ENOSYS) {
      return fail(ErrorCode::kSystem,
                  fmt::format("the agent may not {} the memory of the worker, process {}: {}", verb, pid_, advice()));
    }
    return fail(ErrorCode::kSystem,
                fmt::format("the agent cannot {} {} bytes at {:#x} of the worker, process {}: {}; a tensor must live "
                            "until its collective is done",
                            verb, size_bytes, address, pid_, std::strerror(error)));
  }
  return {};
}

Result<void> WorkerMemory::read(std::uint64_t address, std::size_t size_bytes, std::byte* to) const {
  return move("read", address, size_bytes, [&](std::size_t done) {
    const iovec ours{to + done, size_bytes - done};
    const iovec theirs{reinterpret_cast<void*>(address + done), size_bytes - done};
    return process_vm_readv(pid_, &ours, 1, &theirs, 1, 0);
  });
}

Result<void> WorkerMemory::write(std::uint64_t address, std::size_t size_bytes, const std::byte* from) const {
  return move("write", address, size_bytes, [&](std::size_t done) {
    const iovec ours{const_cast<std::byte*>(from) + done, size_bytes - done};
    const iovec theirs{reinterpret_cast<void*>(address + done), size_bytes - done};
    return process_vm_writev(pid_, &ours, 1, &theirs, 1, 0);
  });
}

}  // namespace netfold::group

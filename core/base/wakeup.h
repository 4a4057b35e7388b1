// Waiting for descriptors and being woken: an eventfd, and poll with a deadline.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <span>

#include "base/clock.h"

namespace netfold {

class Wakeup {
 public:
  Wakeup() : Wakeup(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  explicit Wakeup(int descriptor) : descriptor_(descriptor) {}  // an eventfd from another process; owns it
  ~Wakeup() { close(descriptor_); }
  Wakeup(const Wakeup&) = delete;

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(descriptor_, &one, sizeof one);  // full means: already awake
  }
  void clear() const {
    std::uint64_t count;
    [[maybe_unused]] const auto got = read(descriptor_, &count, sizeof count);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Sleeps until a descriptor is ready or the deadline passed; kNever sleeps until a descriptor is ready.
inline void wait_for(std::span<pollfd> descriptors, Nanoseconds deadline) {
  timespec timeout{};
  if (deadline != kNever) {
    const Nanoseconds left = deadline - now();
    if (left > 0) timeout = {left / kSecond, left % kSecond};
  }
  ppoll(descriptors.data(), descriptors.size(), deadline == kNever ? nullptr : &timeout, nullptr);
}

}  // namespace netfold

// Two words in memory that a device reads and writes too. They replace calls into the device's driver: the thread that
// runs collectives makes none. So it never waits for another thread that waits for the device.
#pragma once

#include <atomic>
#include <cstdint>

namespace netfold::group {

// The device writes `number` to `copied` when the tensor has arrived here. When the collective is over, `over` gets
// `number`, or after a failure the number that follows. The device waits for at least `number` there before it copies
// the tensor back. A word that is not there is null.
struct DeviceWords {
  const std::uint32_t* copied = nullptr;
  std::uint32_t* over = nullptr;
  std::uint32_t number = 0;

  bool has_copied() const {
    if (copied == nullptr) return true;
    return std::atomic_ref(*const_cast<std::uint32_t*>(copied)).load(std::memory_order_acquire) == number;
  }
  void say_over(bool has_failed) const {
    if (over != nullptr) std::atomic_ref(*over).store(number + (has_failed ? 1 : 0), std::memory_order_release);
  }
};

}  // namespace netfold::group

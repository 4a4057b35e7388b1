// The IPv4 addresses whose data packets a switch of frames folds: its own, and those of the hosts of running jobs. All
// threads read it; control threads write it, before a job's first packet and after its last.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace netfold::switching {

class DataAddresses {
 public:
  DataAddresses(std::uint32_t own, std::uint16_t jobs_max) : own_(own), hosts_(jobs_max) {}

  bool is_own(std::uint32_t ip) const { return ip == own_; }
  bool contains(std::uint32_t ip) const {
    if (ip == own_) return true;
    const std::uint16_t used = used_.load(std::memory_order_acquire);
    for (std::uint16_t job = 0; job < used; ++job) {
      if (hosts_[job].load(std::memory_order_relaxed) == ip) return ip != 0;
    }
    return false;
  }

  // 0: the job has no host. From one thread at a time.
  void set(std::uint16_t job, std::uint32_t ip) {
    hosts_[job].store(ip, std::memory_order_relaxed);
    if (ip != 0 && job >= used_.load(std::memory_order_relaxed)) {
      used_.store(static_cast<std::uint16_t>(job + 1), std::memory_order_release);
    }
  }

 private:
  std::uint32_t own_;
  std::vector<std::atomic<std::uint32_t>> hosts_;  // by job
  std::atomic<std::uint16_t> used_{0};             // jobs from here on have no address
};

}  // namespace netfold::switching

// The CPU time of another thread, readable from any thread.
#pragma once

#include <pthread.h>

#include <ctime>
#include <thread>

namespace netfold {

class ThreadClock {
 public:
  explicit ThreadClock(std::thread& thread) { pthread_getcpuclockid(thread.native_handle(), &clock_); }  // it runs

  double seconds() const {  // so far; 0 once the thread has ended
    timespec used{};
    clock_gettime(clock_, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  }

 private:
  clockid_t clock_{};
};

}  // namespace netfold

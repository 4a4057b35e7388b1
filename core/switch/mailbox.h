// Small tasks for a thread that must not be kept waiting: control threads post them, the thread runs them between two
// batches. An empty mailbox costs one relaxed load.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

namespace netfold::switching {

class Mailbox {
 public:
  // Returns when the thread has run it. `wake` gets the thread out of its sleep, if it may be in one.
  void run_there(
      std::function<void()> task, const std::function<void()>& wake = [] {}) {
    std::promise<void> done;
    std::future<void> taken = done.get_future();
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back({std::move(task), std::move(done)});
    }
    has_posted_.store(true, std::memory_order_release);
    wake();
    taken.wait();
  }

  // On the thread.
  void run_posted() {
    if (!has_posted_.load(std::memory_order_acquire)) return;
    std::vector<Posted> posted;
    {
      const std::lock_guard lock(mutex_);
      has_posted_.store(false, std::memory_order_relaxed);
      posted.swap(posted_);
    }
    for (Posted& it : posted) {
      it.task();
      it.done.set_value();
    }
  }

 private:
  struct Posted {
    std::function<void()> task;
    std::promise<void> done;
  };

  std::atomic<bool> has_posted_{false};
  std::mutex mutex_;  // never taken on the packet path while nothing is posted
  std::vector<Posted> posted_;
};

}  // namespace netfold::switching

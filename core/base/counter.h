// A counter with one writer: a plain add for it, and readable from anywhere.
#pragma once

#include <atomic>
#include <cstdint>

namespace netfold {

class Counter {
 public:
  void add(std::uint64_t amount) { value_.store(get() + amount, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace netfold

// What is asked for: one all-reduce.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "numbers/format.h"

namespace netfold::engine {

// `in` and `out` hold `count` elements of `type`; they may be the same memory. Both must live, and stay untouched by
// the caller, until the all-reduce completes. A failed one loses nothing that was handed over: `in` is as it was, also
// where it is `out`. A result of its own then holds nothing in particular: to keep what it held would cost every
// all-reduce half as much again in memory traffic.
struct AllReduce {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  numbers::ElementType type = numbers::ElementType::kFp32;
  numbers::Format format = numbers::Format::kFp32;
  bool average = false;

  bool is_in_place() const { return in == out; }
};

// kInvalidArgument if it makes no sense.
Result<void> check(const AllReduce& request);

}  // namespace netfold::engine

// What is asked for: one all-reduce.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "numbers/format.h"

namespace netfold::engine {

// `in` and `out` hold `count` elements of `type`; they may be the same memory. Both must live, and stay untouched by
// the caller, until the all-reduce completes.
struct AllReduce {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  numbers::ElementType type = numbers::ElementType::kFp32;
  numbers::Format format = numbers::Format::kFp32;
  bool average = false;
};

// kInvalidArgument if it makes no sense.
Result<void> check(const AllReduce& request);

}  // namespace netfold::engine

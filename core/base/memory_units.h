// The machine's units of memory.
#pragma once

#include <cstddef>

namespace netfold {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kCacheLineBytes = 64;

}  // namespace netfold

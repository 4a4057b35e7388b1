// The machine's units of memory, for what several processes map.
#pragma once

#include <cstddef>

namespace netfold::link {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLineBytes = 64;  // of a cache

}  // namespace netfold::link

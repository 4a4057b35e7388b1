// memcpy past the caches: for what is written once and not read again soon. An ordinary store first reads the line it
// overwrites and pushes others out of the cache.
#pragma once

#include <cstddef>

namespace netfold {

// The memory must not overlap.
void streaming_copy(void* to, const void* from, std::size_t size_bytes);

}  // namespace netfold

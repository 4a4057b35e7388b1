// A TCP connection as a stream link: a buffer for each direction, moved to and from the kernel in large pieces.
#pragma once

#include <memory>

#include "base/result.h"
#include "link/stream_link.h"

namespace netfold::link {

// Takes over a connected socket (and closes it in the end, also on failure).
Result<std::unique_ptr<StreamLink>> tcp_stream(int descriptor);

}  // namespace netfold::link

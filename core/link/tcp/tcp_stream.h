// TCP connections as one stream link: a buffer for each direction, moved to and from the kernel in large pieces.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "link/descriptor.h"
#include "link/stream_link.h"
#include "link/tags.h"

namespace netfold::link {

constexpr int kTcpStreamsMax = 16;

// Of connected sockets, the same at both ends. Several share the bytes in stripes (stripes.h): each takes as many as it
// can carry, and one that carries nothing more is left out until it does. So they may be flows over paths of a network,
// or over NICs of different speed, which fail and come back. With `tags` (at both ends or at neither) a tag covers
// every byte. Only bytes under a right tag can be read; a wrong tag ends the link.
Result<std::unique_ptr<StreamLink>> tcp_stream(std::vector<Descriptor> sockets, std::unique_ptr<Tags> tags = nullptr);

}  // namespace netfold::link

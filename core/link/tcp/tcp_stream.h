// TCP connections as one stream link: a buffer for each direction, moved to and from the kernel in large pieces.
//
// With several connections the bytes are dealt out to them in stripes, in turn: the position of a byte determines its
// connection, so nothing is added to the stream and nothing is sorted. Each connection is a flow of its own to whatever
// spreads flows: paths of a network, queues of a NIC, cores of a kernel.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "link/descriptor.h"
#include "link/stream_link.h"

namespace netfold::link {

constexpr int kTcpStreamsMax = 16;

// Of connected sockets, in the same order at both ends.
Result<std::unique_ptr<StreamLink>> tcp_stream(std::vector<Descriptor> sockets);

}  // namespace netfold::link

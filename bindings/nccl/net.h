// ncclNet: messages from one rank to another, over several TCP connections. These functions serve every version of the
// interface (versions.cc).
#pragma once

#include <cstddef>

#include "interface.h"

namespace netfold::nccl::net {

Status init(Logger logger);
Status devices(int* count);
Status listen(int device, void* handle, void** listener);
Status connect(int device, void* handle, void** sender);
Status accept(void* listener, void** receiver);
Status isend(void* sender, void* data, std::size_t bytes, void** request);
Status irecv(void* receiver, int count, void* data, std::size_t bytes, void** request);
Status test(void* request, int* is_done, int* bytes);
Status close_send(void* sender);
Status close_receive(void* receiver);
Status close_listen(void* listener);

// Memory of this process needs no registration, and data that has come needs no flush.
Status register_memory(int type, void** registration);
Status flush(void** request);

}  // namespace netfold::nccl::net

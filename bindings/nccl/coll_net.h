// ncclCollNet: all-reduces of one communicator through Netfold's switch. These functions serve every version of the
// interface (versions.cc).
//
// The ranks of a communicator are a job at the switch. Rank 0's handle has the job's name, which it draws by lot.
#pragma once

#include <cstddef>

#include "interface.h"

namespace netfold::nccl::coll_net {

Status init(Logger logger);
Status devices(int* count);  // none without NETFOLD_SWITCH
Status listen(void* handle, void** listener);
// Joins the job. Blocks until all ranks are there, but not for long; a failure makes NCCL do without.
Status connect(void* handles[], int ranks, int rank, void** communicator);
Status reduce_support(DataType type, Operation operation, int* is_supported);
Status iallreduce(void* communicator, void* in, void* out, std::size_t count, DataType type, Operation operation,
                  void** request);
Status test(void* request, int* is_done, int* bytes);
Status close_communicator(void* communicator);

}  // namespace netfold::nccl::coll_net

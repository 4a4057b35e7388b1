// GOAL text, the input of LogGOPSim: of each rank its sends, receives and computations, and what each requires.
//
//   num_ranks 2
//   rank 0 {
//   l1: calc 100                    nanoseconds
//   l2: send 65536b to 1 tag 3      bytes; cpu N and nic N after it are read and left alone
//   l2 requires l1
//   }
//   rank 1 {
//   l1: recv 65536b from 0 tag 3
//   }
//
// A send meets the first receive of its tag there that no earlier one has met; it does not wait for it. `requires`
// waits for the end of an operation, `irequires` for its start.
#pragma once

#include <string_view>

#include "base/result.h"
#include "sim/workload.h"

namespace netfold::sim {

// kInvalidArgument naming the line and what is wrong with it.
Result<Workload> read_goal(std::string_view text);

}  // namespace netfold::sim

// Workers with the software's RoCE endpoints (group/via_roce/roce_endpoint.h) on cables that lose frames, in simulated
// time: lost frames must be requested, answered, and right in the end.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "switch/job.h"

namespace netfold::rtl {

struct EndpointsRun {
  JobOptions job;  // its ports: all
  std::uint32_t messages = 8;
  double loss = 0.05;      // of frames, on every cable, each way
  double damage = 0;       // of frames to the switch: their FCS is wrong
  double stall = 0;        // after this number of frames that leave, the neighbour accepts no frames for up to 10 us
  bool goes_back = false;  // receivers request all frames from the first missing one on, as NICs do; else single frames
  bool pauses = false;     // the switch asks neighbours to wait when its buffers fill
  std::uint64_t seed = 1;
};

// messages that every worker got; wrong: messages whose sum differs from the software's; frames that workers sent
// again, by reason; verdicts of the hardware; cycles and time_ns. Throws std::runtime_error if no frame arrives for
// long.
nlohmann::json run_endpoints(const EndpointsRun& run);

}  // namespace netfold::rtl

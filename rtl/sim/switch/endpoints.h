// Workers with the software's RoCE endpoints (session/roce_endpoint.h) on cables that lose frames, in simulated time:
// whatever is lost must be asked for, answered, and right in the end.
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
  double stall = 0;        // after so many of the frames that leave, the neighbour takes nothing for up to 10 us
  bool goes_back = false;  // receivers ask for all from the first that is missing on, as NICs do; else for single ones
  bool pauses = false;     // the switch asks neighbours to wait when its buffers fill
  std::uint64_t seed = 1;
};

// messages that every worker got; wrong: of them, with another sum than the software's; what workers sent again, and
// why; verdicts of the hardware; cycles and time_ns. Throws std::runtime_error where nothing comes for long.
nlohmann::json run_endpoints(const EndpointsRun& run);

}  // namespace netfold::rtl

// Workers at line rate through the switch: an all-reduce by folding, or a ring through forwarding ports. Plain and
// repeated frames come between. The frames are timed, and optionally compared with the software's switch.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "switch/workers.h"

namespace netfold::rtl {

struct Scene {
  JobOptions job;
  WorkersOptions workers;
  unsigned world = 0;  // workers at the first ports; 0: all
  bool is_compared = true;
  bool pauses = false;    // the switch asks workers to wait when its buffers fill
  Ticks skew = 0;         // of the ports' clocks
  std::string pcap_path;  // "": no capture; else a file of leaving frames for each port, PATH.<port>.pcap
};

// cycles; time_ns from the first frame in to the last sum out; frames that left each port (number, gaps and their time,
// share of the line); underruns, pauses, lost sums, unexpected frames, differences; latencies of folds, repeats and
// forwards. Throws std::runtime_error if the simulation stops.
nlohmann::json run_scene(const Scene& scene);

}  // namespace netfold::rtl

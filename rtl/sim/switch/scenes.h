// Workers at line rate through the switch: an all-reduce through its fold or a ring through its forwarding ports, with
// plain frames and repeated ones between, timed, and compared with the software's switch frame by frame if wanted.
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
  std::string pcap_path;  // "": no capture of what leaves; else a file a port, PATH.<port>.pcap
};

// cycles; time_ns from the first frame in to the last sum out; what left each port (frames, gaps and their time, share
// of the line); underruns, pauses, lost sums, unexpected frames, differences; latencies of folds, repeats and forwards.
// Throws std::runtime_error where nothing moves any more.
nlohmann::json run_scene(const Scene& scene);

}  // namespace netfold::rtl

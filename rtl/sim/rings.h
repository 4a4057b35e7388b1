// Whole rings of Verilated devices in lock step, on a switch in virtual time.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "ethernet.h"

namespace netfold::rtl {

// One ring and its simultaneous requests.
struct RingRun {
  unsigned world = 4;
  bool bfp = false;
  std::vector<std::uint32_t> counts = {1024};
  EthernetOptions ethernet = {};
  double host_stall = 0;
  std::uint64_t seed = 1;
};

struct RingResult {
  std::uint64_t differences = 0;  // to the software's ring, over all ranks
  std::uint64_t failed = 0;       // requests that did not end with DONE
  std::uint64_t cycles = 0;       // until the last rank has read its last completion
  nlohmann::json counters;        // summed over ranks
};
RingResult run_ring(const RingRun& run);

// Random worlds, counts, formats, stalls and faults. Returns `runs`, `differences`, `failed` and the coverage.
nlohmann::json run_rings(unsigned runs, unsigned world_max, std::uint32_t count_max, double loss, std::uint64_t seed);

}  // namespace netfold::rtl

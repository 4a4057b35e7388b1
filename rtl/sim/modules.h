// Compares the arithmetic modules with the reference kernels: millions of random and corner values, with idle cycles
// and backpressure, or at full speed.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace netfold::rtl {

struct ModuleRun {
  std::string module;        // "fold", "encode" or "decode"
  std::uint64_t values = 0;  // numbers of input
  std::uint64_t seed = 1;
  double idle = 0, stall = 0;  // probabilities that a cycle has no input, or accepts no output
};

// values, differences, beats, cycles, beats_per_cycle (between first and last), latency_cycles (of one beat or block in
// an empty module). Throws std::invalid_argument for an unknown module, std::runtime_error if the module stops.
nlohmann::json run_module(const ModuleRun& run);

}  // namespace netfold::rtl

// Frames that come in rounds, forwarded by a pipeline none of whose ports fold, and folded by another, in turns, memory
// to memory.
//
// On one core, or on two (dpdk-switch, Fig. 8): one receives, and hands the other what it folds. A generator takes
// turns with the first on its core; only the pipelines' own time counts, as in core_bench.h. Every frame that is
// forwarded must come out as it went in, every sum bit for bit as the plain fold makes it.
#pragma once

#include <cstdint>
#include <vector>

#include "link/frame_devices.h"
#include "switch/ethernet/ethernet_switch.h"
#include "switch_bench/core_clock.h"
#include "switch_bench/rounds.h"

namespace netfold::apps {

struct RoundOptions {
  std::uint16_t workers = 8;
  bool two_cores = false;
  std::uint64_t frames = 4'000'000;  // in each of the two turns, if 20 s are enough
  std::vector<int> cores;            // of the one that receives, of the one that folds; fewer: any
};

// The work of a pipeline in the rounds in which the kernel did not take its core.
struct PipelineTime {
  std::uint64_t frames = 0, ticks = 0, rounds = 0, disturbed_rounds = 0;

  std::size_t pump(switching::Pipeline& pipeline, Nanoseconds now);
  double frames_s() const;
};

struct RoundResult {
  PipelineTime forwarding;     // no port folds
  PipelineTime while_folding;  // all workers' ports do: of the core that receives
  PipelineTime folding;        // of the other core, where there are two
  RoundCounts counts;
  std::uint64_t missing = 0;  // frames and sums that did not come out
};

// The devices: the workers' ports, then the host's, all in memory; threads_of() send and receive.
RoundResult run_rounds(link::FrameDevices& devices, Rounds& rounds, const RoundOptions& options);
constexpr std::uint16_t threads_of(const RoundOptions& options) {
  return options.two_cores ? 2 : 1;
}

}  // namespace netfold::apps

// Case 2 (dpdk-switch, section 4.2.2) measured memory to memory: 192-byte writes that go on to their host whatever
// becomes of them, forwarded by a pipeline none of whose ports fold, and by the same pipeline while it folds, in turns.
//
// On one core, or on two: one receives and forwards, and hands the other references to fold. A generator takes turns
// with the first on its core; only the pipelines' own time counts, as in core_bench.h. Every write must come out as it
// went in, every sum bit for bit as the plain fold makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frames/pipeline.h"
#include "link/frame_devices.h"
#include "switch_bench/core_clock.h"

namespace netfold::apps {

struct Case2Options {
  std::uint16_t workers = 8;
  bool two_cores = false;
  std::uint64_t frames = 4'000'000;  // in each of the two turns, if 20 s are enough
  std::uint64_t seed = 1;
  std::vector<int> cores;  // of the one that receives, of the one that folds; fewer: any
};

// What a pipeline did, in the rounds in which the kernel left it its core.
struct PipelineTime {
  std::uint64_t frames = 0, ticks = 0, rounds = 0, disturbed_rounds = 0;

  std::size_t pump(frames::Pipeline& pipeline, Nanoseconds now);
  double frames_s() const;
};

struct Case2Result {
  PipelineTime forwarding;              // no port folds
  PipelineTime forwarding_and_folding;  // all workers' ports do: of the core that receives
  PipelineTime folding;                 // of the other core, where there are two
  std::uint64_t writes_checked = 0, wrong_writes = 0, sums_checked = 0, wrong_sums = 0, missing_sums = 0;
};

// The devices: the workers' ports, then the host's, all in memory; threads_of() send and receive.
Case2Result run_case2(link::FrameDevices& devices, const Case2Options& options);
constexpr std::uint16_t threads_of(const Case2Options& options) {
  return options.two_cores ? 2 : 1;
}

}  // namespace netfold::apps

// One core of a switch measured memory to memory: a generator and the switch's pipeline take turns on one thread, and
// only the pipeline's turns count. So no frame crosses between cores, and the generator takes nothing of the measured
// time. At a set rate the clock stands still while the generator works, so it is as fast as one in hardware.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "link/fault_injector.h"
#include "link/frame_devices.h"
#include "switch/ethernet/ethernet_switch.h"
#include "switch_bench/core_clock.h"
#include "switch_bench/distribution.h"
#include "switch_bench/gradients.h"

namespace netfold::apps {

constexpr std::uint32_t kWindowInMemory = 16;

struct BenchOptions {
  std::uint16_t workers = 8;
  std::uint16_t gradients = 366;
  numbers::Format format = numbers::Format::kFp32;
  std::uint32_t window = kWindowInMemory;  // chunks in flight; a power of two
  double rate_gbit_s = 0;                  // of incoming gradient frames, 0: as fast as the switch takes them
  double plain = 0;                        // share of plain frames among all that are offered
  std::uint16_t plain_bytes = 512;
  std::uint64_t frames = 4'000'000;  // gradient frames, at least
  std::uint64_t chunks_a_job = 0;    // then the job goes and another comes; 0: one job
  link::Faults faults;
  std::uint64_t seed = 1;
};

struct CoreResult {
  std::uint64_t gradient_frames = 0, plain_frames = 0;  // that the switch took
  std::uint64_t chunks = 0, results_checked = 0, wrong_sums = 0;
  std::uint64_t offered_frames = 0, refused_frames = 0;  // refused: the port's queue was full
  std::uint64_t gradient_frames_lost = 0, plain_frames_lost = 0, plain_frames_delivered = 0;
  std::uint64_t faults_injected = 0, probes = 0, resent = 0, jobs = 0;
  std::uint64_t ticks = 0, instructions = 0;  // of the pipeline, undisturbed rounds only
  std::uint64_t counted_frames = 0;           // in those rounds
  std::uint64_t rounds = 0, disturbed_rounds = 0;
  std::size_t buffers_leaked = 0;
  bool counters_add_up = true;
  Distribution latency, plain_delay;
};

class CoreBench {
 public:
  // On `thread` of the devices, whose ports are the workers' and in memory; the pipeline uses queue `thread`.
  CoreBench(link::FrameDevices& devices, std::uint16_t thread, const BenchOptions& options);

  CoreResult run();

 private:
  struct Pending {
    std::uint32_t chunk = 0;
    std::uint32_t results = 0;     // that have come back
    std::uint64_t offered_at = 0;  // by the pipeline's clock
    std::vector<bool> has_result;  // by worker
  };

  void begin_job();
  void end_job();
  void run_closed_loop();
  void run_at_rate();
  void offer(std::uint16_t worker, std::uint32_t chunk, bool is_probe = false);
  void offer_plain(std::uint64_t due);
  void put(link::PortNumber port, link::Frame frame, bool with_faults);
  void release_held();
  std::size_t pump_counted();
  void pump_until_idle();
  void collect();
  void on_answer(std::uint16_t worker, const link::OutgoingFrame& frame);
  void recover();
  void check_counters();

  link::FrameDevices& devices_;
  std::uint16_t thread_;
  BenchOptions options_;
  Prng prng_;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<switching::FrameJob> job_;
  switching::EthernetSwitch switch_;
  switching::SwitchThread switch_thread_;
  InstructionCounter instruction_counter_;
  std::uint64_t clock_ = 0;  // ticks that the pipeline has worked, or waited for what was due
  double ticks_a_frame_ = 100;
  std::uint32_t next_chunk_ = 0;
  std::uint16_t epoch_ = 0;
  std::vector<Pending> pending_;                                // by chunk % window
  std::size_t undone_ = 0;                                      // chunks in flight
  std::vector<std::pair<link::PortNumber, link::Frame>> held_;  // overtaken by later frames
  std::uint64_t plain_offered_ = 0;
  CoreResult result_;
};

}  // namespace netfold::apps

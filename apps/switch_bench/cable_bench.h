// The generator by itself: workers at the ends of cables, whose other ends are a switch that runs already, in any place
// and of any make that speaks Netfold's packets. Each worker has a device of its own, and an interface (worker_seat.h)
// through which it joins a job as any worker does. The window of real workers (group/via_switch/window.h) decides which
// packets are sent, probed and sent again; here it runs at a set rate. Every sum that comes back is checked.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "group/via_switch/joining.h"
#include "group/via_switch/window.h"
#include "link/frame_devices.h"
#include "switch_bench/distribution.h"
#include "switch_bench/gradients.h"
#include "switch_bench/worker_seat.h"

namespace netfold::apps {

struct CableOptions {
  group::JoinOptions join;          // of all; rank and world are added
  std::uint32_t first_address = 0;  // of rank 0; the next ranks have the next ones
  numbers::Format format = numbers::Format::kFp32;
  std::uint16_t gradients = 0;  // a frame; 0: as many as the switch lets into one
  std::uint64_t seed = 1;
};

// Of one run. A frame counts as lost if it did not come, whichever way it went.
struct CableResult {
  std::uint64_t gradient_frames = 0, chunks = 0, results_checked = 0, wrong_sums = 0;
  std::uint64_t contributions_lost = 0, results_lost = 0;  // the first by what the switch missed, the other by probes
  std::uint64_t probes = 0;
  std::uint64_t missed_frames = 0;            // of those lost: that came, and that this machine was too slow to fetch
  Nanoseconds time = 0;                       // from the first frame to the last result
  Nanoseconds sending_time = 0;               // from the first frame to the last that was sent
  std::uint64_t rounds = 0, idle_rounds = 0;  // of the generator
  Distribution latency;                       // from a chunk's last contribution to its last result
};

class CableBench {
 public:
  // A worker for each port of the devices. Blocks until all of them have joined, bounded by join.timeout_s; errors say
  // which cable, address or switch to look at.
  static Result<std::unique_ptr<CableBench>> join(link::FrameDevices& devices, const CableOptions& options);
  ~CableBench();  // leaves the job

  // Offers `frames` at this rate, of all workers together; 0: as fast as windows let them out.
  Result<CableResult> run(std::uint64_t frames, double rate_gbit_s);
  const Gradients& gradients() const { return *gradients_; }

 private:
  struct Worker {
    std::unique_ptr<TapWorker> seat;
    group::ControlConnection* control = nullptr;
    std::unique_ptr<group::Window> window;
    std::vector<link::OutgoingFrame> backlog;     // that the port has not taken yet
    std::uint64_t notices = 0, late_results = 0;  // results that the window no longer knows
    bool has_answer = false;                      // to its gradients
  };
  struct Pending {  // a chunk, by its position
    group::Window::Position position = UINT64_MAX;
    std::uint32_t sent = 0, results = 0;
    Nanoseconds last_sent = 0;
  };

  CableBench(link::FrameDevices& devices, const CableOptions& options);
  Result<void> wait_for_links();
  Result<void> take_seats();
  void make_job();
  void pump_kernels();
  bool pump(std::uint16_t rank, Nanoseconds now);
  bool receive(std::uint16_t rank, Nanoseconds now);
  bool send(std::uint16_t rank, Nanoseconds now);
  void on_frame(std::uint16_t rank, const link::Frame& frame, Nanoseconds now);
  void on_result(Worker& worker, group::Window::Position position, Nanoseconds now);
  void note_sent(group::Window::Position position, Nanoseconds now);
  Result<void> check(Nanoseconds now);
  struct Totals {  // of all runs
    std::uint64_t resent = 0, probes = 0, answered = 0, missed_frames = 0;
  };
  Totals totals() const;

  link::FrameDevices& devices_;
  CableOptions options_;
  std::unique_ptr<Gradients> gradients_;
  std::vector<Worker> workers_;
  std::vector<Pending> pending_;  // by position modulo slots
  link::Frame spare_{};           // allocated, and not needed yet
  Nanoseconds last_sent_ = 0;
  CableResult result_;
};

}  // namespace netfold::apps

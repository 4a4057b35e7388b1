#include "switch_bench/round_bench.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/thread.h"

namespace netfold::apps {
namespace {

constexpr Nanoseconds kRoundMax = 5 * kSecond, kTimeMost = 20 * kSecond;
constexpr double kDisturbedTimes = 4;
constexpr std::uint16_t kFoldingThread = 0, kReceivingThread = 1;  // of two
constexpr std::size_t kFrameRoomBytes = 2048;

class RoundBench {
 public:
  RoundBench(link::FrameDevices& devices, Rounds& rounds, const RoundOptions& options)
      : devices_(devices),
        rounds_(rounds),
        options_(options),
        forwarding_(switch_for(rounds)),
        folding_(switch_for(rounds)) {
    rounds.teach(forwarding_.addresses());
    rounds.teach(folding_.addresses());
    forwarding_.settings().folding_ports = 0;
    folding_.settings().folding_ports = (std::uint64_t{1} << options.workers) - 1;
  }

  RoundResult run() {
    std::thread folder;
    if (options_.two_cores) folder = std::thread([&] { fold_until_stopped(); });
    std::thread receiver([&] { receive(); });
    receiver.join();
    stops_ = true;
    if (folder.joinable()) folder.join();
    return result_;
  }

 private:
  // Of one thread, one for each turn: what folds keeps its jobs while nothing is to be folded.
  struct Pipelines {
    switching::SwitchThread forwarding, folding;
    switching::Pipeline& of(bool folds) const { return folds ? *folding.pipeline : *forwarding.pipeline; }
  };

  static switching::EthernetSwitchOptions switch_for(const Rounds& rounds) {
    switching::EthernetSwitchOptions options;
    options.addresses.age_max = 1'000'000 * kSecond;
    rounds.want_handler(options);
    return options;
  }

  int core(std::size_t which) const {
    return which < options_.cores.size() ? options_.cores[which] : netfold::kAnyCore;
  }

  Pipelines make_pipelines(std::uint16_t thread) {
    const bool receives = !options_.two_cores || thread == kReceivingThread;
    switching::PipelinePorts ports;
    for (link::PortNumber number = 0; number < devices_.ports(); ++number) {
      ports.all.push_back(&devices_.port(number, thread));
      if (receives) ports.receiving.push_back(number);
    }
    if (options_.two_cores) ports.peers = {&devices_.inbox(kFoldingThread)};
    if (!receives) ports.inbox = ports.peers[0];
    Pipelines made{forwarding_.make_thread(thread, devices_.pool(), ports),
                   folding_.make_thread(thread, devices_.pool(), ports)};
    if (thread == kFoldingThread) rounds_.place_jobs(made.folding, devices_.pool());
    return made;
  }

  void receive() {
    netfold::set_up_thread("nf-receive", core(0));
    devices_.enter_thread();
    queue_ = options_.two_cores ? kReceivingThread : kFoldingThread;
    {
      const Pipelines pipelines = make_pipelines(queue_);
      const auto lacks_frames = [&] {
        return result_.forwarding.frames < options_.frames || result_.while_folding.frames < options_.frames;
      };
      // Where the cores are shared with others, every round may wait for the other core's turn.
      for (const Nanoseconds until = now() + kTimeMost; lacks_frames() && now() < until && result_.missing == 0;) {
        run_round(pipelines, result_.forwarding, false);
        run_round(pipelines, result_.while_folding, true);
        rounds_.next_round();
      }
    }
    devices_.leave_thread();
  }

  void fold_until_stopped() {
    netfold::set_up_thread("nf-fold", core(1));
    devices_.enter_thread();
    {
      const Pipelines pipelines = make_pipelines(kFoldingThread);
      PipelineTime others;
      while (!stops_) {
        const bool folds = folds_now_.load(std::memory_order_acquire);
        folder_knows_.store(folds, std::memory_order_release);
        if ((folds ? result_.folding : others).pump(pipelines.of(folds), now()) == 0) sched_yield();
      }
    }
    devices_.leave_thread();
  }

  // All of a round's frames come in, and all that follows from them goes out.
  void run_round(const Pipelines& pipelines, PipelineTime& time, bool folds) {
    folds_now_.store(folds, std::memory_order_release);  // nothing is on its way
    while (options_.two_cores && folder_knows_.load(std::memory_order_acquire) != folds) sched_yield();
    switching::Pipeline& pipeline = pipelines.of(folds);
    const std::size_t frames = rounds_.frames_a_worker() * options_.workers;
    for (std::size_t frame = 0; frame < rounds_.frames_a_worker(); ++frame) {
      for (std::uint16_t worker = 0; worker < options_.workers; ++worker) offer(worker, frame);
    }
    const std::size_t sums = folds ? rounds_.sums_a_round() : 0;
    const std::size_t forwarded = folds && rounds_.sums_only() ? 0 : frames;
    const std::uint64_t wanted = result_.counts.out() + sums + forwarded;
    const Nanoseconds begun = now();
    while (time.pump(pipeline, begun) > 0) {
    }
    do {
      for (std::uint16_t queue = 0; queue < threads_of(options_); ++queue) collect(queue);
      pipeline.pump(begun);  // what a queue had no room for
    } while (result_.counts.out() < wanted && now() - begun < kRoundMax);
    result_.missing += wanted - std::min(wanted, result_.counts.out());
  }

  void offer(std::uint16_t worker, std::size_t number) {
    link::Frame frame = devices_.pool().allocate();
    if (frame.buffer == nullptr) return;  // missed, and so told
    frame.size_bytes = static_cast<std::uint32_t>(rounds_.write(worker, number, frame.bytes));
    if (devices_.far_end(worker)->offer(queue_, {&frame, 1}) == 0) devices_.pool().release({&frame.buffer, 1});
  }

  void collect(std::uint16_t queue) {
    std::array<link::OutgoingFrame, 64> frames;
    std::array<std::byte, kFrameRoomBytes> whole;
    for (link::PortNumber port = 0; port < devices_.ports(); ++port) {
      while (const std::size_t count = devices_.far_end(port)->collect(queue, frames)) {
        for (const link::OutgoingFrame& frame : std::span(frames).first(count)) {
          link::Frame one = frame.head;
          if (frame.body.buffer != nullptr) {
            std::memcpy(whole.data(), frame.head.bytes, frame.head.size_bytes);
            std::memcpy(whole.data() + frame.head.size_bytes, frame.body.bytes, frame.body.size_bytes);
            one.bytes = whole.data();
            one.size_bytes = static_cast<std::uint32_t>(frame.size_bytes());
          }
          rounds_.check(port, one, result_.counts);
          devices_.pool().release(frame);
        }
      }
    }
  }

  link::FrameDevices& devices_;
  Rounds& rounds_;
  const RoundOptions& options_;
  std::uint16_t queue_ = 0;
  switching::EthernetSwitch forwarding_, folding_;  // of the two turns
  std::atomic<bool> folds_now_{false}, folder_knows_{false}, stops_{false};
  RoundResult result_;
};

}  // namespace

std::size_t PipelineTime::pump(switching::Pipeline& pipeline, Nanoseconds now) {
  Stretch stretch;
  const std::size_t moved = pipeline.pump(now);
  stretch.end();
  if (moved == 0) return 0;
  ++rounds;
  const double expected = frames > 0 ? static_cast<double>(ticks) / static_cast<double>(frames) : 1000;
  if (stretch.is_disturbed(expected * static_cast<double>(moved), kDisturbedTimes)) {
    ++disturbed_rounds;
    return moved;
  }
  frames += moved;
  ticks += stretch.ticks();
  return moved;
}

double PipelineTime::frames_s() const {
  return ticks > 0 ? static_cast<double>(frames) / static_cast<double>(ticks) * CoreClock::ticks_a_second() : 0;
}

RoundResult run_rounds(link::FrameDevices& devices, Rounds& rounds, const RoundOptions& options) {
  return RoundBench(devices, rounds, options).run();
}

}  // namespace netfold::apps

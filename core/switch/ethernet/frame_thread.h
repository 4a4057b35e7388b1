// A thread of an Ethernet switch and its pipeline: it forwards and folds frames until it is destroyed.
#pragma once

#include <sched.h>
#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"
#include "base/thread_clock.h"
#include "link/frame_devices.h"
#include "switch/ethernet/ethernet_switch.h"
#include "switch/ethernet/pipeline.h"
#include "switch/mailbox.h"

namespace netfold::switching {

class FrameThread {
 public:
  FrameThread(link::FrameDevices& devices, SwitchThread part, const std::string& name, int core, bool always_polls)
      : name_(name),
        devices_(devices),
        pipeline_(std::move(part.pipeline)),
        handler_(*part.netfold),
        always_polls_(always_polls) {
    thread_ = std::thread([this, core] { run(core); });
    clock_.emplace(thread_);
  }
  ~FrameThread() {
    stopping_ = true;
    thread_.join();
  }
  FrameThread(const FrameThread&) = delete;

  void place(std::uint16_t id, FrameJob* job) {
    mailbox_.run_there([&] { handler_.place(id, job, devices_.pool()); });
  }

  ThreadUse use() const { return {name_, clock_->seconds(), {}}; }  // from any thread
  const Pipeline& pipeline() const { return *pipeline_; }
  const PortCounters& counters(link::PortNumber port) const { return pipeline_->counters(port); }
  std::uint64_t dropped(link::PortNumber port) const { return pipeline_->outbox().dropped(port); }
  const NetfoldHandler& handler() const { return handler_; }

 private:
  void run(int core) {
    set_up_thread(name_, core);
    prctl(PR_SET_TIMERSLACK, 1);
    devices_.enter_thread();
    unsigned idle_rounds = 0;
    while (!stopping_.load(std::memory_order_relaxed)) {
      mailbox_.run_posted();
      idle_rounds = pipeline_->pump(now()) > 0 ? 0 : idle_rounds + 1;
      if (idle_rounds > kIdleRoundsBeforeYield && !always_polls_) rest(idle_rounds);
    }
    pipeline_.reset();  // gives its buffers back here, where the pool has a store of this thread
    devices_.leave_thread();
  }

  static constexpr unsigned kIdleRoundsBeforeYield = 64, kIdleRoundsBeforeNap = 256;
  static constexpr Nanoseconds kNap = 50 * kMicrosecond;

  static void rest(unsigned idle_rounds) {
    if (idle_rounds < kIdleRoundsBeforeNap) {
      sched_yield();
      return;
    }
    const timespec nap{0, kNap};
    nanosleep(&nap, nullptr);
  }

  std::string name_;
  link::FrameDevices& devices_;
  std::unique_ptr<Pipeline> pipeline_;
  NetfoldHandler& handler_;
  bool always_polls_;
  Mailbox mailbox_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::optional<ThreadClock> clock_;
};

}  // namespace netfold::switching

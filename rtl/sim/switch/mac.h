// A 10G Ethernet MAC as the switch sees it: a beat per clock on one side, frames on a cable on the other. A cable is
// busy for a frame, its preamble, its FCS and the gap after it, even if they are not simulated. So frames arrive at
// most at line rate, and a late frame leaves a measurable gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace netfold::rtl {

// 100 ps: a bit at 10 Gbit/s, and the unit in which the periods of 200 and 156.25 MHz are whole numbers.
using Ticks = std::uint64_t;
inline constexpr Ticks kCorePeriod = 50, kMacPeriod = 64, kByteTime = 8, kTicksPerNs = 10;
inline constexpr std::size_t kBeatBytes = 8, kPreambleBytes = 8, kFcsBytes = 4, kGapBytes = 12, kFrameBytesMin = 60;

using Bytes = std::vector<std::byte>;

// The time of a frame without FCS on a cable.
constexpr Ticks cable_time(std::size_t frame_bytes) {
  const std::size_t padded = frame_bytes < kFrameBytesMin ? kFrameBytesMin : frame_bytes;
  return (kPreambleBytes + padded + kFcsBytes + kGapBytes) * kByteTime;
}

struct Beat {
  std::uint64_t data = 0;
  unsigned bytes = kBeatBytes;  // in use; fewer only in the last
  bool is_last = false, is_damaged = false;
};

struct TimedFrame {
  Bytes bytes;
  Ticks first = 0, last = 0;  // the clock edges of its first and last beat
  Ticks gap = 0;              // idle time of the cable before it
  bool is_damaged = false;    // it leaves with a wrong FCS
};

// From the neighbour to the switch. When the cable is free, a source provides the next frame.
class MacReceiver {
 public:
  struct Arrival {
    Bytes bytes;
    bool is_damaged = false;
  };
  using Source = std::function<std::optional<Arrival>(Ticks now)>;
  using Sink = std::function<void(const TimedFrame&)>;

  // on_whole is called for every frame at its last beat.
  void connect(Source source, Sink on_whole) {
    source_ = std::move(source);
    on_whole_ = std::move(on_whole);
  }
  // The beat for the switch at a clock edge of this port; empty between frames. It comes once per edge: a MAC cannot
  // wait.
  std::optional<Beat> beat(Ticks now);
  void pause(Ticks until) { paused_until_ = until; }
  bool is_idle(Ticks now) const { return !frame_ && now >= free_; }

 private:
  Source source_;
  Sink on_whole_;
  std::optional<Arrival> frame_;
  TimedFrame timed_;
  std::size_t sent_ = 0;  // bytes of frame_
  Ticks begins_ = 0, free_ = 0, paused_until_ = 0;
};

// From the switch to the neighbour.
class MacSender {
 public:
  explicit MacSender(Ticks clock_period) : period_(clock_period) {}

  void connect(MacReceiver::Sink sink) { sink_ = std::move(sink); }
  bool is_ready(Ticks now) const;
  // The beat from the switch at an edge with is_ready(); a missing beat inside a frame is an underrun.
  void take(Ticks now, const std::optional<Beat>& beat);
  void stop(Ticks until) { stopped_until_ = until; }  // by the neighbour's pause frames; takes effect between frames

  std::uint64_t underruns() const { return underruns_; }
  std::uint64_t frames() const { return frames_; }
  Ticks busy() const { return busy_; }  // of the cable, so far

 private:
  Ticks period_;
  MacReceiver::Sink sink_;
  TimedFrame frame_;
  bool is_in_frame_ = false, is_late_ = false;
  Ticks begins_ = 0, free_ = 0, stopped_until_ = 0, busy_ = 0;
  std::uint64_t underruns_ = 0, frames_ = 0;
};

}  // namespace netfold::rtl

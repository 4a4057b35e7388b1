// A 10G Ethernet MAC as the switch sees it: a beat a clock on one side, frames on a cable on the other. A cable is busy
// for a frame, its preamble, its FCS and the gap behind it, whether they are carried here or not: so frames come at
// line rate and no faster, and what leaves late leaves a measurable gap.
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

// What a frame without FCS costs on a cable.
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
  Ticks gap = 0;              // for which the cable was idle before it
  bool is_damaged = false;    // it leaves with a wrong FCS
};

// From the neighbour to the switch. Frames are asked of a source when the cable is free.
class MacReceiver {
 public:
  struct Arrival {
    Bytes bytes;
    bool is_damaged = false;
  };
  using Source = std::function<std::optional<Arrival>(Ticks now)>;
  using Sink = std::function<void(const TimedFrame&)>;

  // on_whole is told of every frame at its last beat.
  void connect(Source source, Sink on_whole) {
    source_ = std::move(source);
    on_whole_ = std::move(on_whole);
  }
  // What the switch sees at a clock edge of this port; empty between frames. Once an edge: a MAC cannot wait.
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
  // What the switch gives at an edge with is_ready(); nothing is an underrun inside a frame.
  void take(Ticks now, const std::optional<Beat>& beat);
  void stop(Ticks until) { stopped_until_ = until; }  // the neighbour's pause frames: between frames

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

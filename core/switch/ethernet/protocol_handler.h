// A protocol handler gives the frames of one protocol a meaning: Netfold's packets, RoCE, PCIe over Ethernet. This
// page is the whole contract. The pipeline offers every frame that parses to its protocol handlers in turn, until one
// says that the frame is its own. The pipeline forwards all other frames by their MAC address, as any switch does.
//
// A protocol handler is a pure state machine: frames and the time in, frames out (through the Outbox). It does no I/O,
// reads no clock, never waits, and allocates nothing on the frame path but buffers of outbox.pool(). One thread uses
// it. A switch with several threads has one instance a thread, and hands a frame to the thread that thread_of() names.
//
// References (link/frame_port.h). The frame that is offered carries one reference, the pipeline's. By its answer the
// handler says who owns it from then on:
//
//   kNotMine   nobody's yet: the next handler is asked. Leave no trace.
//   kForward   the frame goes on by its MAC address, unmodified. To fold it as well, and so read its bytes after
//              offer() returned, retain it before: outbox.pool().retain(frame.frame.buffer, 1).
//   kTaken     the reference is now the handler's. It keeps the buffer (in a window, a slot) and releases it later,
//              uses it as (the head of) a frame it sends, or has released it already.
//   kDropped   as kNotMine in its effect on references, but the pipeline releases the frame and forwards it nowhere.
//              The handler has counted why.
//
// Bytes of a frame may be overwritten only by a sole owner (pool().is_sole(buffer)): another handler or port may still
// read them. After kForward no handler may.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "switch/ethernet/headers.h"
#include "switch/ethernet/outbox.h"

namespace netfold::switching {

// The number of a thread that folds nothing and only receives for others; and of whichever has the frame.
constexpr std::uint16_t kNoFolding = 0xffff, kAnyThread = 0xfffe;

constexpr Nanoseconds kSweepPeriod = 50 * kMillisecond;  // between two looks for what is too old

// From b to a, of numbers that wrap.
inline std::int32_t distance(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b);
}

enum class HandlerVerdict : std::uint8_t { kNotMine, kForward, kTaken, kDropped };

class ProtocolHandler {
 public:
  virtual ~ProtocolHandler() = default;

  // Hot calls first. `frame.frame.port` is where it came in; it is valid during the call, what must last is copied
  // (ParsedFrame is small, and its `frame` a plain handle).
  virtual HandlerVerdict offer(const ParsedFrame& frame, Outbox& outbox) = 0;
  // Before the frames of a burst are offered: the place to fetch into the cache what offer() will read.
  virtual void on_burst(std::span<const link::Frame>) {}
  // After each burst of a port: the place to send what was gathered during it. Frames of outbox.send() leave then.
  virtual void on_burst_end(Outbox&) {}
  // The time, about once a millisecond; for what should happen when nothing comes.
  virtual void on_time(Nanoseconds, Outbox&) {}

  // The switch has several threads: which of them owns the state that this frame needs? The same on every instance,
  // cheap; asked on whatever thread received the frame, only of frames that recognises() claims. kAnyThread: none.
  virtual bool recognises(const ParsedFrame& frame) const = 0;
  virtual std::uint16_t thread_of(const ParsedFrame&, std::uint16_t /*threads*/) const { return 0; }
  // It answers nothing but kForward: frames need not wait for it. The thread that received one forwards it, and hands a
  // reference to the thread that owns the state.
  virtual bool only_reads() const { return false; }

  // The port's link came up or went down; on every instance. Folds that need a port that is down cannot complete.
  virtual void on_port(link::PortNumber, bool /*is_up*/, Outbox&) {}
  // Gives back every reference it holds, before it is destroyed.
  virtual void drain(Outbox& outbox) = 0;

  virtual const char* name() const = 0;  // "netfold", "roce_v1": of counters and log lines
  // Counters by name, drops as "drop_<reason>"; from any thread (base/counter.h).
  virtual std::vector<std::pair<std::string, std::uint64_t>> counts() const = 0;
};

}  // namespace netfold::switching

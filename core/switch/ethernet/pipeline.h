// One thread of the Ethernet switch handles each burst of frames in the stages of allreduce-switch (section IV):
//
//   receive -> parse -> learn -> offer to the handlers -> (fold) -> forward what is nobody's -> send
//
// No thread and no clock: a thread drives it over DPDK ports, tests over ports in memory. Ports are read in turn, a
// burst of at most kBurst frames from each, and everything is sent when a burst is queued or all ports were read. So no
// frame waits for more than a burst of another kind.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/counter.h"
#include "switch/ethernet/headers.h"
#include "switch/ethernet/mac_table.h"
#include "switch/ethernet/outbox.h"
#include "switch/ethernet/protocol_handler.h"

namespace netfold::switching {

struct PipelineOptions {
  ParseOptions parse;
  // Folding threads of the switch, and which one this is; kNoFolding: it receives for others.
  std::uint16_t threads = 1, thread = 0;
};

// All of the switch's ports; those this thread receives from; where other threads hand it frames (may be null).
struct PipelinePorts {
  std::vector<link::Port*> all;
  std::vector<link::PortNumber> receiving;
  std::vector<link::Port*> peers;  // to the other folding threads, by number; null for itself
  link::Port* inbox = nullptr;
};

// Of one port, as one thread saw it. Every received frame is in exactly one of the others; counted besides are flaws
// that do not end a frame's way, and `unread_handover`. A frame that was handed over is counted by the thread that got
// it: over all threads, `received` is the sum of all but `handed_over`.
struct PortCounters {
  Counter received, received_bytes;
  Counter taken, forwarded, flooded, handed_over;
  Counter filtered;  // for an address at the port it came from, or for the bridge itself
  Counter dropped;   // by a protocol handler
  // The ring to the thread that owns its slot was full: lost there, or, where that thread only reads
  // (ProtocolHandler::only_reads), forwarded and not read.
  Counter dropped_handover, unread_handover;
  std::array<Counter, static_cast<std::size_t>(Flaw::kCount)> flaws;
};

class Pipeline {
 public:
  static constexpr std::size_t kBurst = 32;

  Pipeline(link::BufferPool& pool, PipelinePorts ports, MacTable& addresses,
           std::vector<std::unique_ptr<ProtocolHandler>> handlers, PipelineOptions options = {});
  ~Pipeline();

  // One burst from every port, and what follows from it; returns the number of frames that came.
  std::size_t pump(Nanoseconds now);

  Outbox& outbox() { return outbox_; }
  const Outbox& outbox() const { return outbox_; }
  std::span<const std::unique_ptr<ProtocolHandler>> handlers() const { return handlers_; }
  const PortCounters& counters(link::PortNumber port) const { return counters_[port]; }

 private:
  std::size_t receive(link::Port& from);
  void handle(const link::Frame& frame, bool is_handed_over);
  enum class Place : std::uint8_t { kHere, kElsewhere, kReadElsewhere };
  Place place_of(const ParsedFrame& frame);
  void forward(const ParsedFrame& frame);
  void learn(MacAddress from, link::PortNumber port);
  void on_time();
  void drop(const link::Frame& frame) { outbox_.pool().release({&frame.buffer, 1}); }

  PipelinePorts ports_;
  MacTable& addresses_;
  PipelineOptions options_;
  Outbox outbox_;
  std::vector<std::unique_ptr<ProtocolHandler>> handlers_;
  std::vector<PortCounters> counters_;  // by port
  std::vector<bool> is_up_;             // by port, as the protocol handlers were told
  Nanoseconds time_told_ = 0;
  std::array<link::Frame, kBurst> burst_;  // here, not on the stack, where each burst would clear them first
  ParsedFrame parsed_;
  struct Learned {
    MacAddress from;
    Nanoseconds at = 0;
  };
  std::vector<Learned> learned_;  // by port: the last, since frames come in rows from one sender
};

}  // namespace netfold::switching

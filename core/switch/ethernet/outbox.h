// Frames on their way out of one thread of the switch, gathered by port and sent in bursts. Frames for a full port wait
// here up to a bound. Further frames are dropped and counted, so a slow port never delays the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/counter.h"
#include "link/frame_port.h"
#include "switch/ethernet/mac_table.h"
#include "switch/ethernet/settings.h"

namespace netfold::switching {

class Outbox {
 public:
  static constexpr std::size_t kBacklogMost = 4096;  // frames a port

  // The port numbers are the places in `ports`. `peers` lead to the folding threads of the switch, by their number; a
  // thread has no ring to itself, and a switch of one thread has no rings.
  Outbox(link::BufferPool& pool, std::span<link::Port* const> ports, const MacTable& addresses,
         std::span<link::Port* const> peers = {});
  ~Outbox();  // releases what was not sent
  Outbox(const Outbox&) = delete;

  // Hot calls first. Takes over the frame's references. The frames to one port keep their order.
  void send(link::PortNumber port, const link::OutgoingFrame& frame) {
    std::vector<link::OutgoingFrame>& queue = queues_[port];
    if (queue.size() >= kBacklogMost) return drop(port, frame);
    queue.push_back(frame);
    ++queued_;
  }
  // The same whole frame to several ports: takes over one reference to it, and adds those it needs.
  void send(std::span<const link::PortNumber> ports, const link::Frame& whole);

  // By the address table, or to all ports but `frame.port` where the address is unknown or a group's. Takes over one
  // reference. Frames that a protocol handler makes set `frame.port` to link::kNoPort. Where one of them comes of a
  // frame that came in at `of_port`, it is not flooded back there: a switch below would learn the sender's address
  // anew.
  enum class Way : std::uint8_t { kPort, kFlooded, kNowhere };  // kNowhere: it would go back where it came from
  Way forward(MacAddress to, const link::Frame& frame, link::PortNumber of_port = link::kNoPort);
  // To another folding thread, which offers it to its own protocol handlers. Takes over one reference. False: the way
  // there was full, and so was its backlog; the frame is dropped.
  bool hand_over(std::uint16_t thread, const link::Frame& frame) {
    const std::size_t output = ports_ + thread;
    const bool has_room = queues_[output].size() < kBacklogMost;
    send(static_cast<link::PortNumber>(output), {frame, {}});
    return has_room;
  }

  // Gives the ports what is queued; called by the pipeline after a burst. True if nothing is left over.
  bool flush();
  std::size_t queued() const { return queued_; }  // since the last flush

  // Protocol handlers ask it before they fold: settings().folds(port), settings().adds_floats.
  const Settings& settings() const { return *settings_; }
  void set_settings(const Settings& settings) { settings_ = &settings; }

  Nanoseconds time() const { return time_; }  // of this burst
  void set_now(Nanoseconds now) {
    time_ = now;
    last_found_ = {};
  }

  link::BufferPool& pool() { return pool_; }
  std::size_t ports() const { return ports_; }
  link::Port& port(link::PortNumber number) { return *outputs_[number]; }
  link::PortNumber port_of(MacAddress address) const { return addresses_.find(address, time_); }
  std::uint64_t dropped(link::PortNumber port) const { return dropped_[port].get(); }  // the port was full; any thread

 private:
  void drop(link::PortNumber port, const link::OutgoingFrame& frame);

  link::BufferPool& pool_;
  std::size_t ports_;
  std::vector<link::Port*> outputs_;  // the ports, then the peers; null: not there
  const MacTable& addresses_;
  std::size_t queued_ = 0;
  Nanoseconds time_ = 0;
  struct {
    MacAddress to{~std::uint64_t{0}};  // of no port
    link::PortNumber port = link::kNoPort;
  } last_found_;           // of this burst: frames come in rows to one address
  Settings own_settings_;  // where no settings were given
  const Settings* settings_ = &own_settings_;
  std::vector<std::vector<link::OutgoingFrame>> queues_;  // by output
  std::vector<Counter> dropped_;                          // by output
};

}  // namespace netfold::switching

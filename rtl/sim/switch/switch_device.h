// A Verilated netfold_switch between 10G MACs, one per port, in simulated time: step() advances to the next edge of any
// of its clocks. It is built for one number of ports. The ports have clocks of their own (200 MHz inside, 156.25 MHz
// outside), or the whole switch has one clock. In both cases beats come and go at the rate of a 10G cable.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "switch/mac.h"

namespace netfold::rtl {

class SwitchDevice {
 public:
  static constexpr unsigned kPorts = NETFOLD_RTL_PORTS;
  static constexpr bool kHasCrossings = NETFOLD_RTL_CROSSINGS != 0;

  // Port p's clock is `skew` x p behind the first one's. It is reset, and its address table is ready.
  explicit SwitchDevice(Ticks skew = 0);
  ~SwitchDevice();

  MacReceiver& receiver(unsigned port) { return receivers_[port]; }
  MacSender& sender(unsigned port) { return senders_[port]; }
  // Frames that leave at a port, without pause frames: those stop the neighbour's sending, as in reality.
  void on_frame(unsigned port, MacReceiver::Sink sink);

  void step();
  void run_for(Ticks time);
  Ticks now() const { return now_; }
  std::uint64_t cycles() const { return cycles_; }  // of the clock inside
  std::uint64_t pauses(unsigned port) const { return pauses_[port]; }

  // Registers over AXI-Lite; each access takes a few cycles, in which the simulation continues.
  std::uint32_t read(std::uint32_t offset);
  bool write(std::uint32_t offset, std::uint32_t value);

 private:
  struct Model;

  void drive(unsigned port);
  void sample(unsigned port);
  void core_cycle();
  bool hear_pause(unsigned port, const TimedFrame& frame);

  std::unique_ptr<Model> model_;
  std::vector<MacReceiver> receivers_;
  std::vector<MacSender> senders_;
  std::array<Ticks, kPorts> port_edges_{};  // the time of the next edge
  std::array<bool, kPorts> is_ready_{};
  std::array<std::uint64_t, kPorts> pauses_{};
  Ticks now_ = 0, core_edge_ = 0;
  std::uint64_t cycles_ = 0;
};

}  // namespace netfold::rtl

// A Verilated netfold_switch between 10G MACs, one a port, in simulated time: step() goes on to the next edge of any of
// its clocks. Built for one number of ports, with clocks of their own at the ports (200 MHz inside, 156.25 MHz outside)
// or without: then all of it has one clock, and beats come and go at the pace of a 10G cable all the same.
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
  // Frames that leave at a port. Pause frames do not come here: they stop the neighbour's sending, as they would.
  void on_frame(unsigned port, MacReceiver::Sink sink);

  void step();
  void run_for(Ticks time);
  Ticks now() const { return now_; }
  std::uint64_t cycles() const { return cycles_; }  // of the clock inside
  std::uint64_t pauses(unsigned port) const { return pauses_[port]; }

  // Registers over AXI-Lite; each access takes a few cycles, in which everything else goes on.
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
  std::array<Ticks, kPorts> port_edges_{};  // when the next one comes
  std::array<bool, kPorts> is_ready_{};
  std::array<std::uint64_t, kPorts> pauses_{};
  Ticks now_ = 0, core_edge_ = 0;
  std::uint64_t cycles_ = 0;
};

}  // namespace netfold::rtl

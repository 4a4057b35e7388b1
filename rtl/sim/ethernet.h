// A switch with a device at each port, in virtual time: frames leave and enter a device at the port's rate, take a
// latency to cross, and are routed by address. It can lose, repeat, delay and damage them, by seed.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/prng.h"
#include "device.h"
#include "group/via_nic/nic_driver.h"

namespace netfold::rtl {

// Bytes that Ethernet adds to a frame: checksum, preamble and the gap between frames; and the shortest frame with them.
inline constexpr std::size_t kEthernetOverheadBytes = 24, kEthernetFrameBytesMin = 84;

// Of the device at a port: locally administered, the first byte in the lowest bits.
std::uint64_t address_of_port(unsigned port);
// Of a device in a ring of all ports, in their order.
group::RingPlace place_in_ring(unsigned position, unsigned size);
// Numbers at their address in this process, as the device knows it.
inline std::uint64_t address_of(const std::vector<float>& numbers) {
  return reinterpret_cast<std::uint64_t>(numbers.data());
}
inline void expect_done(const Result<void>& done) {
  if (!done) throw std::runtime_error(done.error().message);
}
// A request that has ended, read when the device interrupts.
inline std::optional<group::NicEnd> next_end(const Device& device, group::NicDriver& driver) {
  return device.interrupts() ? driver.completion().value() : std::nullopt;
}

struct EthernetOptions {
  double bytes_per_cycle = 0;  // of a port, each way; 0: a beat per cycle, without gaps between frames
  unsigned latency = 20;       // cycles
  double loss = 0, duplicate = 0, reorder = 0, damage = 0;  // probabilities for a frame
  std::uint64_t seed = 1;
};

class Ethernet {
 public:
  Ethernet(std::vector<Device>& devices, const EthernetOptions& options);

  void step();  // one cycle of the switch and all devices
  std::uint64_t cycles() const { return cycle_; }

 private:
  struct Crossing {
    std::uint64_t due;
    Frame frame;
  };
  struct Port {
    double free_at = 0, fed_at = 0;  // when it may send, and receive, the next frame
    std::deque<Crossing> crossing;   // towards the device, by the time it is due
  };

  double wire_cycles(const Frame& frame) const;
  void cross(std::size_t from, Frame frame);
  void schedule(std::size_t to, Frame frame, unsigned delay);

  std::vector<Device>& devices_;
  EthernetOptions options_;
  Prng prng_;
  std::vector<Port> ports_;
  std::uint64_t cycle_ = 0;
};

}  // namespace netfold::rtl

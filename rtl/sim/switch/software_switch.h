// The software's switch of RoCE frames, in simulated time: the expected behaviour of the hardware.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "switch/ethernet/memory_switch.h"
#include "switch/mac.h"

namespace netfold::rtl {

class SoftwareSwitch {
 public:
  SoftwareSwitch(unsigned ports, switching::RoceOptions options = {});

  // A frame arrives at a port; returns the frames that leave, by port. Time must not decrease.
  switching::MemorySwitch::Sent offer(unsigned port, const Bytes& frame, Ticks now);

  // AGG_MODE and AGG_PORT_CFG, as in the hardware.
  void set_registers(std::uint32_t mode, std::uint32_t port_config);
  // Frames of both versions, as the hardware counts them.
  std::uint64_t count(switching::RoceVerdict verdict) const {
    return switch_.thread().roce->count(verdict) + switch_.thread().roce_v2->count(verdict);
  }
  std::uint64_t flawed(switching::Flaw flaw) const;  // frames of all ports

 private:
  switching::MemorySwitch switch_;
};

}  // namespace netfold::rtl

// The software's switch of RoCE v1 frames, in the simulation's time: what the hardware must do with the same frames.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "frames/memory_switch.h"
#include "frames/roce_dialect.h"
#include "switch/mac.h"

namespace netfold::rtl {

class SoftwareSwitch {
 public:
  SoftwareSwitch(unsigned ports, frames::RoceOptions options = {});

  // A frame comes in at a port; by port, the frames that leave. Time does not go back.
  frames::MemorySwitch::Sent offer(unsigned port, const Bytes& frame, Ticks now);

  // AGG_MODE and AGG_PORT_CFG, as the hardware has them.
  void set_registers(std::uint32_t mode, std::uint32_t port_config);
  std::uint64_t count(frames::RoceVerdict verdict) const { return dialect_->count(verdict); }
  std::uint64_t flawed(frames::Flaw flaw) const;  // frames of all ports

 private:
  const frames::RoceDialect* dialect_ = nullptr;
  frames::MemorySwitch switch_;
};

}  // namespace netfold::rtl

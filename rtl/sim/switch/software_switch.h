// The software's switch of frames, fed by hand: what the hardware must do with the same frames.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frames/aggregation_config.h"
#include "frames/pipeline.h"
#include "frames/roce_dialect.h"
#include "link/frame_memory.h"
#include "switch/mac.h"

namespace netfold::rtl {

class SoftwareSwitch {
 public:
  SoftwareSwitch(unsigned ports, frames::RoceOptions options = {});

  // A frame comes in at a port; by port, the frames that leave. Time does not go back.
  std::vector<std::pair<unsigned, Bytes>> offer(unsigned port, const Bytes& frame, Ticks now);

  // AGG_MODE and AGG_PORT_CFG, as the hardware has them.
  void set_registers(std::uint32_t mode, std::uint32_t port_config);
  std::uint64_t count(frames::RoceVerdict verdict) const { return dialect_->count(verdict); }
  std::uint64_t flawed(frames::Flaw flaw) const;  // frames of all ports

 private:
  link::MemoryPool pool_;
  frames::Settings settings_;
  frames::AggregationSettings by_job_{settings_};
  frames::MacTable addresses_;
  std::vector<std::unique_ptr<link::MemoryPort>> ports_;
  frames::RoceDialect* dialect_ = nullptr;
  std::unique_ptr<frames::Pipeline> pipeline_;
};

}  // namespace netfold::rtl

// A whole switch of frames over ports in memory, in one thread and in the time it is told: the same frames at the same
// times give the same frames. Hardware is compared with it, and programs that hold raw frames are served by it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "frames/aggregation_config.h"
#include "frames/pipeline.h"
#include "link/frame_memory.h"

namespace netfold::frames {

class MemorySwitch {
 public:
  using Dialects = std::vector<std::unique_ptr<Dialect>>;
  using MakeDialects = std::function<Dialects(const AggregationSettings&)>;
  using Sent = std::vector<std::pair<link::PortNumber, std::vector<std::byte>>>;

  MemorySwitch(link::PortNumber ports, const MakeDialects& make_dialects);

  // A frame (without FCS) comes in at a port; returns the frames that leave, by port. Time does not go back.
  Sent offer(link::PortNumber port, std::span<const std::byte> frame, Nanoseconds now);
  // Time goes on though nothing comes.
  Sent pump(Nanoseconds now);

  Settings& settings() { return settings_; }
  AggregationSettings& by_job() { return by_job_; }
  std::size_t ports() const { return ports_.size(); }
  const Pipeline& pipeline() const { return *pipeline_; }
  std::size_t buffers_in_use() const { return pool_.in_use(); }

 private:
  link::MemoryPool pool_;
  Settings settings_;
  AggregationSettings by_job_{settings_};
  MacTable addresses_;
  std::vector<std::unique_ptr<link::MemoryPort>> ports_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace netfold::frames

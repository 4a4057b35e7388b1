// A port in memory, device string "ring": its other end is in the same process, for a generator.
#pragma once

#include <rte_ring.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "link/frame_devices.h"

namespace netfold::link {

class RingDevice final : public FarEnd {
 public:
  // `queues` in each direction, of `frames` (a power of two) each.
  static Result<std::unique_ptr<RingDevice>> create(std::size_t number, std::uint16_t queues, std::size_t frames);
  ~RingDevice() override;

  std::size_t offer(std::uint16_t queue, std::span<const Frame> frames) override;
  std::size_t collect(std::uint16_t queue, std::span<OutgoingFrame> into) override;
  std::uint16_t id() const { return id_; }  // DPDK's

 private:
  std::vector<rte_ring*> to_switch_, from_switch_;
  std::uint16_t id_ = 0;
};

}  // namespace netfold::link

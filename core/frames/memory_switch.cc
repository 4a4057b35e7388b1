#include "frames/memory_switch.h"

namespace netfold::frames {

MemorySwitch::MemorySwitch(link::PortNumber ports, const MakeDialects& make_dialects) {
  PipelinePorts all;
  for (link::PortNumber number = 0; number < ports; ++number) {
    ports_.push_back(std::make_unique<link::MemoryPort>(pool_, number));
    all.all.push_back(ports_.back().get());
    all.receiving.push_back(number);
  }
  pipeline_ = std::make_unique<Pipeline>(pool_, std::move(all), addresses_, make_dialects(by_job_));
  pipeline_->outbox().set_settings(settings_);
}

MemorySwitch::Sent MemorySwitch::offer(link::PortNumber port, std::span<const std::byte> frame, Nanoseconds now) {
  ports_.at(port)->arrive(frame);
  return pump(now);
}

MemorySwitch::Sent MemorySwitch::pump(Nanoseconds now) {
  while (pipeline_->pump(now) > 0) {
  }
  Sent sent;
  for (link::PortNumber port = 0; port < ports_.size(); ++port) {
    for (auto& frame : ports_[port]->fetch()) sent.emplace_back(port, std::move(frame));
  }
  return sent;
}

}  // namespace netfold::frames

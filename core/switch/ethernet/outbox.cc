#include "switch/ethernet/outbox.h"

#include <algorithm>

namespace netfold::switching {

Outbox::Outbox(link::BufferPool& pool, std::span<link::Port* const> ports, const MacTable& addresses,
               std::span<link::Port* const> peers)
    : pool_(pool),
      ports_(ports.size()),
      outputs_(ports.begin(), ports.end()),
      addresses_(addresses),
      queues_(ports.size() + peers.size()),
      dropped_(ports.size() + peers.size()) {
  outputs_.insert(outputs_.end(), peers.begin(), peers.end());
  for (auto& queue : queues_) queue.reserve(kBacklogMost);
}

Outbox::~Outbox() {
  for (const auto& queue : queues_) {
    for (const link::OutgoingFrame& frame : queue) pool_.release(frame);
  }
}

void Outbox::send(std::span<const link::PortNumber> ports, const link::Frame& whole) {
  if (ports.empty()) return pool_.release({&whole.buffer, 1});
  if (ports.size() > 1) pool_.retain(whole.buffer, static_cast<std::uint32_t>(ports.size() - 1));
  for (const link::PortNumber port : ports) send(port, {whole, {}});
}

Outbox::Way Outbox::forward(MacAddress to, const link::Frame& frame, link::PortNumber of_port) {
  if (!to.is_group()) {
    if (last_found_.to != to) last_found_ = {to, port_of(to)};
    const link::PortNumber port = last_found_.port;
    if (port == frame.port && port != link::kNoPort) {
      pool_.release({&frame.buffer, 1});
      return Way::kNowhere;
    }
    if (port < ports_) {
      send(port, {frame, {}});
      return Way::kPort;
    }
  }
  const auto gets_one = [&](link::PortNumber port) { return port != frame.port && port != of_port; };
  std::uint32_t copies = 0;
  for (link::PortNumber port = 0; port < ports_; ++port) copies += gets_one(port) ? 1 : 0;
  if (copies == 0) {
    pool_.release({&frame.buffer, 1});
    return Way::kNowhere;
  }
  if (copies > 1) pool_.retain(frame.buffer, copies - 1);
  for (link::PortNumber port = 0; port < ports_; ++port) {
    if (gets_one(port)) send(port, {frame, {}});
  }
  return Way::kFlooded;
}

bool Outbox::flush() {
  bool is_empty = true;
  queued_ = 0;
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    std::vector<link::OutgoingFrame>& queue = queues_[output];
    if (queue.empty()) continue;
    const std::size_t taken = outputs_[output]->send(queue);
    queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
    is_empty &= queue.empty();
  }
  return is_empty;
}

void Outbox::drop(link::PortNumber port, const link::OutgoingFrame& frame) {
  dropped_[port].add(1);
  pool_.release(frame);
}

}  // namespace netfold::switching

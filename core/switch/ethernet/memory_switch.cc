#include "switch/ethernet/memory_switch.h"

namespace netfold::switching {

MemorySwitch::MemorySwitch(link::PortNumber ports, EthernetSwitchOptions options, std::size_t room_bytes)
    : pool_(SIZE_MAX, room_bytes), switch_(std::move(options)) {
  const std::uint16_t threads = switch_.options().threads;
  PipelinePorts shared;
  for (link::PortNumber number = 0; number < ports; ++number) {
    ports_.push_back(std::make_unique<link::MemoryPort>(pool_, number));
    shared.all.push_back(ports_.back().get());
  }
  for (std::uint16_t thread = 0; threads > 1 && thread < threads; ++thread) {
    inboxes_.push_back(std::make_unique<link::MemoryHandover>(pool_));
    shared.peers.push_back(inboxes_.back().get());
  }
  for (std::uint16_t thread = 0; thread < threads; ++thread) {
    PipelinePorts mine = shared;
    for (link::PortNumber number = thread; number < ports; ++number) {
      if (number % threads == thread) mine.receiving.push_back(number);
    }
    if (threads > 1) mine.inbox = inboxes_[thread].get();
    threads_.push_back(switch_.make_thread(thread, pool_, std::move(mine)));
  }
}

MemorySwitch::Sent MemorySwitch::offer(link::PortNumber port, std::span<const std::byte> frame, Nanoseconds now) {
  ports_.at(port)->arrive(frame);
  return pump(now);
}

MemorySwitch::Sent MemorySwitch::pump(Nanoseconds now) {
  settle(now);
  return fetch();
}

MemorySwitch::Sent MemorySwitch::fetch() {
  Sent sent;
  for (link::PortNumber port = 0; port < ports_.size(); ++port) {
    for (auto& frame : ports_[port]->fetch()) sent.emplace_back(port, std::move(frame));
  }
  return sent;
}

std::size_t MemorySwitch::settle(Nanoseconds now) {
  std::size_t handled = 0;
  for (std::size_t moved = 1; moved > 0; handled += moved) {
    moved = 0;
    for (const SwitchThread& thread : threads_) moved += thread.pipeline->pump(now);
  }
  return handled;
}

}  // namespace netfold::switching

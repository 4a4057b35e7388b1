// A whole Ethernet switch over ports in memory, in one thread of the caller's and in the time it is told: the same
// frames at the same times give the same frames. Hardware is compared with it, programs that hold raw frames are served
// by it, and tests break the network around it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "link/frame_memory.h"
#include "switch/ethernet/ethernet_switch.h"

namespace netfold::switching {

class MemorySwitch {
 public:
  using Sent = std::vector<std::pair<link::PortNumber, std::vector<std::byte>>>;

  // Port p is read by pipeline p mod options.threads. `room_bytes`: of a frame buffer.
  MemorySwitch(link::PortNumber ports, EthernetSwitchOptions options, std::size_t room_bytes = 2048);

  // A frame (without FCS) comes in at a port; returns the frames that leave, by port. Time does not go back.
  Sent offer(link::PortNumber port, std::span<const std::byte> frame, Nanoseconds now);
  // Time goes on though nothing comes.
  Sent pump(Nanoseconds now);
  // The two halves of pump(): the pipelines run until no frame moves, and return how many they handled; the frames that
  // left.
  std::size_t settle(Nanoseconds now);
  Sent fetch();

  Settings& settings() { return switch_.settings(); }
  AggregationSettings& jobs_settings() { return switch_.jobs_settings(); }
  MacTable& addresses() { return switch_.addresses(); }
  DataAddresses& data_addresses() { return switch_.data_addresses(); }
  WayUp& way_up() { return switch_.way_up(); }
  std::size_t ports() const { return ports_.size(); }
  link::MemoryPort& port(link::PortNumber number) { return *ports_.at(number); }
  std::size_t threads() const { return threads_.size(); }
  const SwitchThread& thread(std::size_t number = 0) const { return threads_[number]; }
  const Pipeline& pipeline(std::size_t thread = 0) const { return *threads_[thread].pipeline; }
  link::MemoryPool& pool() { return pool_; }
  std::size_t buffers_in_use() const { return pool_.in_use(); }

 private:
  link::MemoryPool pool_;
  EthernetSwitch switch_;
  std::vector<std::unique_ptr<link::MemoryPort>> ports_;
  std::vector<std::unique_ptr<link::MemoryHandover>> inboxes_;  // by thread; none if there is one thread
  std::vector<SwitchThread> threads_;
};

}  // namespace netfold::switching

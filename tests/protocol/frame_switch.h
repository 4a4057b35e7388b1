// The frame switch in a simulated world: every worker's datagrams reach it as Ethernet frames through a port of their
// own, one pipeline a shard folds them, and its frames are datagrams again. Workers cannot tell it from the sockets'.
#pragma once

#include <memory>
#include <vector>

#include "link/link.h"
#include "switch/ethernet/memory_switch.h"

namespace netfold::tests {

class FrameSwitch {
 public:
  static constexpr link::PortNumber kPorts = 4;
  static constexpr std::uint32_t kIp = 0x0a00'0001;

  // `links`: of the network, by shard; the ports are first_port, first_port + 1, ...
  FrameSwitch(std::vector<std::unique_ptr<link::Link>> links, const switching::Admission& admission,
              switching::DataPlane::OnMismatch on_mismatch);

  void pump(Nanoseconds now);
  Nanoseconds deadline() const;
  std::uint64_t moved_packets() const;  // in and out

  switching::FrameJob& job(std::uint16_t shard) { return *jobs_[shard]; }
  std::uint16_t shards() const { return static_cast<std::uint16_t>(jobs_.size()); }
  std::uint64_t drops(switching::DropReason reason) const;
  bool every_frame_has_one_fate() const;
  link::MemoryPool& pool() { return switch_.pool(); }
  link::MemoryPort& port(link::PortNumber number) { return switch_.port(number); }

 private:
  void take_datagrams(link::Link& link);
  void send_frames();
  void speak_with_above(Nanoseconds now);
  bool is_above(std::uint16_t port) const;
  switching::MacAddress mac_of(std::uint16_t port) const;

  std::uint16_t first_port_;
  Nanoseconds spoken_at_ = 0;
  switching::Tree tree_;                                    // a switch below or above has one address for its ports
  std::vector<std::unique_ptr<link::Link>> links_;          // the network's ends, by shard
  std::vector<std::unique_ptr<switching::FrameJob>> jobs_;  // by shard
  switching::MemorySwitch switch_;
};

}  // namespace netfold::tests

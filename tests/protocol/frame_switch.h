// The frame switch in a simulated world: every worker's datagrams reach it as Ethernet frames through a port of their
// own, one pipeline a shard folds them, and its frames are datagrams again. Workers cannot tell it from the sockets'.
#pragma once

#include <memory>
#include <vector>

#include "link/memory.h"
#include "switch/ethernet/memory_switch.h"

namespace netfold::tests {

class FrameSwitch {
 public:
  static constexpr link::PortNumber kPorts = 4;
  static constexpr std::uint32_t kIp = 0x0a00'0001;

  // Shard t is at port first_port + t of the network.
  FrameSwitch(link::MemoryNetwork& network, std::uint16_t first_port, const switching::Admission& admission,
              switching::DataPlane::OnMismatch on_mismatch);

  void pump(Nanoseconds now);

  switching::FrameJob& job(std::uint16_t shard) { return *jobs_[shard]; }
  std::uint16_t shards() const { return static_cast<std::uint16_t>(jobs_.size()); }
  std::uint64_t drops(switching::DropReason reason) const;
  bool every_frame_has_one_fate() const;
  link::MemoryPool& pool() { return switch_.pool(); }
  link::MemoryPort& port(link::PortNumber number) { return switch_.port(number); }

 private:
  void take_datagrams(link::Link& link);
  void send_frames();

  switching::MacAddress mac_of(std::uint16_t port) const;

  std::uint16_t first_port_;
  std::vector<switching::Contributor> below_;               // switches, whose ports are behind one address each
  std::vector<std::unique_ptr<link::Link>> links_;          // the network's ends, by shard
  std::vector<std::unique_ptr<switching::FrameJob>> jobs_;  // by shard
  switching::MemorySwitch switch_;
};

}  // namespace netfold::tests

// The frame switch in a simulated world: every worker's datagrams reach it as Ethernet frames through a port of their
// own, one pipeline a shard folds them, and its frames are datagrams again. Workers cannot tell it from the sockets'.
#pragma once

#include <memory>
#include <vector>

#include "engine/netfold_dialect.h"
#include "frames/pipeline.h"
#include "link/frame_memory.h"
#include "link/memory.h"

namespace netfold::tests {

class FrameSwitch {
 public:
  static constexpr link::PortNumber kPorts = 4;
  static constexpr std::uint32_t kIp = 0x0a00'0001;

  // Shard t is at port first_port + t of the network.
  FrameSwitch(link::MemoryNetwork& network, std::uint16_t first_port, const engine::Admission& admission,
              engine::DataPlane::OnMismatch on_mismatch);
  ~FrameSwitch();

  void pump(Nanoseconds now);

  engine::FrameJob& job(std::uint16_t shard) { return *threads_[shard].job; }
  std::uint64_t drops(engine::DropReason reason) const;
  bool every_frame_has_one_fate() const;
  link::MemoryPool& pool() { return pool_; }
  link::MemoryPort& port(link::PortNumber number) { return *ports_[number]; }

 private:
  struct Thread {
    std::unique_ptr<link::Link> link;  // the network's end
    std::unique_ptr<link::MemoryHandover> inbox;
    std::unique_ptr<engine::FrameJob> job;
    engine::NetfoldDialect* dialect = nullptr;
    std::unique_ptr<frames::Pipeline> pipeline;
  };

  void take_datagrams(Thread& thread);
  void send_frames();

  std::uint16_t first_port_;
  link::MemoryPool pool_{SIZE_MAX, 4096};
  frames::MacTable addresses_;
  engine::DataAddresses data_addresses_{kIp, 8};
  std::vector<std::unique_ptr<link::MemoryPort>> ports_;
  std::vector<Thread> threads_;
};

}  // namespace netfold::tests

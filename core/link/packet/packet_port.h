// A frame port (frame_port.h) at an interface of the kernel, for a switch of frames where there is no DPDK. Frames are
// copied in and out; the buffers are the heap's.
#pragma once

#include <memory>
#include <vector>

#include "link/frame_memory.h"
#include "link/packet/packet_socket.h"

namespace netfold::link {

class PacketPort final : public Port {
 public:
  PacketPort(MemoryPool& pool, PortNumber number, std::unique_ptr<PacketSocket> socket);

  std::size_t receive(std::span<Frame> into) override;
  std::size_t send(std::span<const OutgoingFrame> batch) override;
  bool is_up() const override { return socket_->is_up(); }
  std::string name() const override { return socket_->interface(); }
  PortStats stats() const override { return stats_; }
  int descriptor() const { return socket_->descriptor(); }

 private:
  MemoryPool& pool_;
  PortNumber number_;
  std::unique_ptr<PacketSocket> socket_;
  std::span<const std::span<const std::byte>> waiting_;  // received and not handed on yet
  std::vector<iovec> pieces_;
  std::vector<std::span<const iovec>> frames_;
  PortStats stats_;
};

}  // namespace netfold::link

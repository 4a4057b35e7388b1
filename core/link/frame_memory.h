// Frame ports and buffers on the heap, within one thread: what tests and simulations put at both ends of a switch.
// Every buffer is an allocation of its own, so a sanitizer sees who reads one that was released.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "link/frame_port.h"

namespace netfold::link {

class MemoryPool final : public BufferPool {
 public:
  explicit MemoryPool(std::size_t buffers_max = SIZE_MAX, std::size_t room_bytes = 2048);
  ~MemoryPool() override;  // all buffers must be back

  using BufferPool::release;
  void release(std::span<Buffer* const> buffers) override;
  void retain(Buffer* buffer, std::uint32_t count) override;
  Frame allocate() override;
  bool is_sole(const Buffer* buffer) const override;
  std::size_t room_bytes() const override { return room_bytes_; }
  std::size_t in_use() const override { return in_use_; }

 private:
  std::size_t buffers_max_, room_bytes_, in_use_ = 0;
};

class MemoryPort final : public Port {
 public:
  // `number` is that of the frames it receives; it takes `queue_max` frames until they are fetched.
  MemoryPort(MemoryPool& pool, PortNumber number, std::size_t queue_max = SIZE_MAX);
  ~MemoryPort() override;

  // The world outside: a frame comes in (false: no buffer, lost and counted); the frames that went out.
  bool arrive(std::span<const std::byte> frame);
  std::vector<std::vector<std::byte>> fetch();
  void set_up(bool is_up) { is_up_ = is_up; }

  std::size_t receive(std::span<Frame> into) override;
  std::size_t send(std::span<const OutgoingFrame> batch) override;
  bool is_up() const override { return is_up_; }
  std::string name() const override;
  PortStats stats() const override { return stats_; }

 private:
  MemoryPool& pool_;
  PortNumber number_;
  std::size_t queue_max_;
  std::deque<Frame> arrived_;
  std::vector<std::vector<std::byte>> sent_;
  PortStats stats_;
  bool is_up_ = true;
};

// From one thread of a simulated switch to another: frames as they are, nothing copied.
class MemoryHandover final : public Port {
 public:
  explicit MemoryHandover(MemoryPool& pool) : pool_(pool) {}
  ~MemoryHandover() override;

  std::size_t receive(std::span<Frame> into) override;
  std::size_t send(std::span<const OutgoingFrame> batch) override;
  std::string name() const override { return "handover"; }
  PortStats stats() const override { return {}; }

 private:
  MemoryPool& pool_;
  std::deque<Frame> frames_;
};

}  // namespace netfold::link

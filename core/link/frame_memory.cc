#include "link/frame_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace netfold::link {
namespace {

struct MemoryBuffer : Buffer {
  explicit MemoryBuffer(std::size_t room_bytes) : bytes(room_bytes) {}
  std::uint32_t references = 1;
  std::vector<std::byte> bytes;
};

MemoryBuffer* own(Buffer* buffer) {
  return static_cast<MemoryBuffer*>(buffer);
}

std::size_t take(std::deque<Frame>& from, std::span<Frame> into) {
  const std::size_t count = std::min(into.size(), from.size());
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = from.front();
    from.pop_front();
  }
  return count;
}

void release_all(const std::deque<Frame>& frames, BufferPool& pool) {
  for (const Frame& frame : frames) pool.release({&frame.buffer, 1});
}

}  // namespace

MemoryPool::MemoryPool(std::size_t buffers_max, std::size_t room_bytes)
    : buffers_max_(buffers_max), room_bytes_(room_bytes) {}

MemoryPool::~MemoryPool() {
  assert(in_use_ == 0 && "a buffer was not released");
}

void MemoryPool::release(std::span<Buffer* const> buffers) {
  for (Buffer* const buffer : buffers) {
    assert(own(buffer)->references > 0);
    if (--own(buffer)->references > 0) continue;
    --in_use_;
    delete own(buffer);
  }
}

void MemoryPool::retain(Buffer* buffer, std::uint32_t count) {
  assert(own(buffer)->references > 0);
  own(buffer)->references += count;
}

Frame MemoryPool::allocate() {
  if (in_use_ == buffers_max_) return {};
  ++in_use_;
  auto* const buffer = new MemoryBuffer(room_bytes_);
  return {buffer, buffer->bytes.data(), static_cast<std::uint32_t>(room_bytes_), kNoPort, false};
}

bool MemoryPool::is_sole(const Buffer* buffer) const {
  return static_cast<const MemoryBuffer*>(buffer)->references == 1;
}

MemoryPort::MemoryPort(MemoryPool& pool, PortNumber number, std::size_t queue_max)
    : pool_(pool), number_(number), queue_max_(queue_max) {}

MemoryPort::~MemoryPort() {
  release_all(arrived_, pool_);
}

bool MemoryPort::arrive(std::span<const std::byte> bytes) {
  Frame frame = bytes.size() <= pool_.room_bytes() ? pool_.allocate() : Frame{};
  if (frame.buffer == nullptr) {
    ++stats_.missed_frames;
    return false;
  }
  std::copy(bytes.begin(), bytes.end(), frame.bytes);
  frame.size_bytes = static_cast<std::uint32_t>(bytes.size());
  frame.port = number_;
  arrived_.push_back(frame);
  return true;
}

std::vector<std::vector<std::byte>> MemoryPort::fetch() {
  return std::exchange(sent_, {});
}

std::size_t MemoryPort::receive(std::span<Frame> into) {
  const std::size_t count = take(arrived_, into);
  for (const Frame& frame : into.first(count)) stats_.received_bytes += frame.size_bytes;
  stats_.received_frames += count;
  return count;
}

std::size_t MemoryPort::send(std::span<const OutgoingFrame> batch) {
  std::size_t taken = 0;
  for (; taken < batch.size() && sent_.size() < queue_max_; ++taken) {
    const OutgoingFrame& frame = batch[taken];
    assert(frame.body.buffer == nullptr || pool_.is_sole(frame.head.buffer));
    std::vector<std::byte>& bytes = sent_.emplace_back(frame.head.bytes, frame.head.bytes + frame.head.size_bytes);
    bytes.insert(bytes.end(), frame.body.bytes, frame.body.bytes + frame.body.size_bytes);
    stats_.sent_bytes += bytes.size();
    pool_.release(frame);
  }
  stats_.sent_frames += taken;
  return taken;
}

std::string MemoryPort::name() const {
  return fmt::format("memory{}", number_);
}

MemoryHandover::~MemoryHandover() {
  release_all(frames_, pool_);
}

std::size_t MemoryHandover::receive(std::span<Frame> into) {
  return take(frames_, into);
}

std::size_t MemoryHandover::send(std::span<const OutgoingFrame> batch) {
  for (const OutgoingFrame& frame : batch) frames_.push_back(frame.head);
  return batch.size();
}

}  // namespace netfold::link

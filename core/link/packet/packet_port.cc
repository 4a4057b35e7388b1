#include "link/packet/packet_port.h"

#include <algorithm>
#include <cstring>

namespace netfold::link {

PacketPort::PacketPort(MemoryPool& pool, PortNumber number, std::unique_ptr<PacketSocket> socket)
    : pool_(pool), number_(number), socket_(std::move(socket)) {}

std::size_t PacketPort::receive(std::span<Frame> into) {
  if (waiting_.empty()) waiting_ = socket_->receive();
  std::size_t count = 0;
  for (; count < into.size() && !waiting_.empty(); waiting_ = waiting_.subspan(1)) {
    const auto bytes = waiting_.front();
    Frame frame = bytes.size() <= pool_.room_bytes() ? pool_.allocate() : Frame{};
    if (frame.buffer == nullptr) {
      ++stats_.missed_frames;
      continue;
    }
    std::memcpy(frame.bytes, bytes.data(), bytes.size());
    frame.size_bytes = static_cast<std::uint32_t>(bytes.size());
    frame.port = number_;
    into[count++] = frame;
    ++stats_.received_frames;
    stats_.received_bytes += bytes.size();
  }
  return count;
}

std::size_t PacketPort::send(std::span<const OutgoingFrame> batch) {
  pieces_.clear();
  pieces_.reserve(batch.size() * 2);
  frames_.clear();
  for (const OutgoingFrame& frame : batch) {
    const std::size_t first = pieces_.size();
    pieces_.push_back({frame.head.bytes, frame.head.size_bytes});
    if (frame.body.buffer != nullptr) pieces_.push_back({frame.body.bytes, frame.body.size_bytes});
    frames_.emplace_back(pieces_.data() + first, pieces_.size() - first);
  }
  std::uint64_t refused = 0;
  const std::size_t taken = socket_->send(frames_, refused);
  for (std::size_t i = 0; i < taken; ++i) {
    stats_.sent_bytes += batch[i].size_bytes();
    pool_.release(batch[i]);
  }
  stats_.sent_frames += taken - refused;
  return taken;
}

}  // namespace netfold::link

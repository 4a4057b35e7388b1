// A stream link over TCP has a buffer for each direction, between its user and the kernel. That is the same for one
// connection and for several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "link/mirrored_memory.h"
#include "link/stream_link.h"

namespace netfold::link {

// Positions only grow; a position modulo the size is a place.
struct RingBuffer {
  std::unique_ptr<MirroredMemory> memory;
  std::uint64_t head = 0, tail = 0;

  std::size_t size() const { return memory->size_bytes(); }
  std::size_t used() const { return head - tail; }
  std::size_t free() const { return size() - used(); }
  std::byte* first_used() const { return at(tail); }
  std::byte* first_free() const { return at(head); }
  std::byte* at(std::uint64_t position) const { return memory->data() + position % size(); }
};

class BufferedStream : public StreamLink {
 public:
  BufferedStream(std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in)
      : out_{std::move(out)}, in_{std::move(in)} {}

  std::span<std::byte> writable() final {
    if (out_.free() == 0) send_some();
    return {out_.first_free(), out_.free()};
  }
  void commit(std::size_t bytes) final { out_.head += bytes; }

  std::span<const std::byte> readable() final {
    if (in_.used() < kWorthReading && !ended_) receive_some();
    return {in_.first_used(), in_.used()};
  }
  void consume(std::size_t bytes) final { in_.tail += bytes; }

  void flush() final { send_some(); }
  bool has_unsent() const final { return out_.used() > 0 && !is_broken_; }

  // The descriptors wake the reader. Data that came since readable() was called last shows there too.
  bool arm(bool for_data, bool for_room) final {
    is_armed_for_data_ = for_data && in_.free() > 0 && !ended_;
    return (for_room && out_.used() == 0) || (is_armed_for_data_ && has_more_at_hand());
  }

  // The kernel spreads the packets, so that flows that end at one port do not fill its queue in bursts.
  void pace(double bytes_s) final {
    if (std::exchange(paced_bytes_s_, bytes_s) != bytes_s) set_pace(bytes_s);
  }

  std::uint64_t committed() const final { return out_.head; }
  std::uint64_t consumed() const final { return in_.tail; }
  const std::optional<std::string>& ended() const final { return ended_; }
  const char* kind() const final { return "tcp"; }
  const StreamStats& stats() const final { return stats_; }

 protected:
  virtual void send_some() = 0;  // out_ to the kernel
  // From the kernel to in_, one piece from each connection: what is left over is fetched when this has been worked on,
  // while it is in the cache.
  virtual void receive_some() = 0;
  // With less at hand the kernel is asked for more. A user never waits for more bytes while so many are unread.
  static constexpr std::size_t kWorthReading = std::size_t{64} << 10;

  // Whether receive_some() would bring bytes without the kernel.
  virtual bool has_more_at_hand() const { return false; }
  virtual void set_pace(double bytes_s) = 0;

  RingBuffer out_, in_;
  bool is_armed_for_data_ = false;
  bool is_broken_ = false;  // nothing goes any more
  std::optional<std::string> ended_;
  StreamStats stats_;

 private:
  double paced_bytes_s_ = 0;
};

}  // namespace netfold::link

// A frame port carries Ethernet frames (without preamble and FCS), in buffers whose references are counted. This page
// is the whole contract; frame_memory.h (tests, simulations) and dpdk/ implement it.
//
// Words: a *buffer* is memory that a device fills and that can go out of several ports at once. It comes from a *pool*
// and returns to it when its last reference is released. A port gives and takes buffers of one pool only. A *reference*
// is a right and a duty: its holder may read the buffer, and must release the reference exactly once or pass it on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"

namespace netfold::link {

using PortNumber = std::uint16_t;
constexpr PortNumber kNoPort = 0xffff;

struct Buffer {};  // what it is, its pool knows: an rte_mbuf, a piece of heap

// Bytes in a buffer: a whole frame, or a part of one.
struct Frame {
  Buffer* buffer = nullptr;
  std::byte* bytes = nullptr;
  std::uint32_t size_bytes = 0;
  PortNumber port = kNoPort;    // where it came in
  bool checksums_good = false;  // the device has checked IPv4 and UDP
  bool is_shared = false;       // others held references as well when it came: read it, do not write

  std::span<std::byte> span() const { return {bytes, size_bytes}; }
};

// A frame to send: `head`, then `body` if it has one. It owns a reference to each.
//
// Without a body, the head's buffer may be shared: the same frame out of several ports costs one reference per port.
// With a body, the head's buffer belongs to this frame only (ports chain it to the body), and every frame that shares
// the body uses the same bytes of it. So a result is written once: addresses differ in the heads, elements are in the
// body.
struct OutgoingFrame {
  Frame head;
  Frame body;

  std::size_t size_bytes() const { return std::size_t{head.size_bytes} + body.size_bytes; }
};

class BufferPool {
 public:
  virtual ~BufferPool() = default;

  // Hot calls first. release: one reference of each. retain: `count` more. Any thread may call them.
  virtual void release(std::span<Buffer* const> buffers) = 0;
  virtual void retain(Buffer* buffer, std::uint32_t count) = 0;
  // An unused buffer with one reference; size_bytes is all its room. Its `buffer` is null if none is left.
  virtual Frame allocate() = 0;
  // True if there is no other reference. The only holder may write, and use the buffer as the head of a frame with a
  // body.
  virtual bool is_sole(const Buffer* buffer) const = 0;

  virtual std::size_t room_bytes() const = 0;  // of one buffer
  virtual std::size_t in_use() const = 0;      // buffers with a reference; exact when no thread is at work

  void release(const OutgoingFrame& frame) {
    Buffer* const both[]{frame.head.buffer, frame.body.buffer};
    release(std::span<Buffer* const>(both, frame.body.buffer != nullptr ? 2 : 1));
  }
};

struct PortStats {
  std::uint64_t received_frames = 0, received_bytes = 0, sent_frames = 0, sent_bytes = 0;
  std::uint64_t missed_frames = 0;   // lost by the device for want of descriptors or buffers
  std::uint64_t receive_errors = 0;  // that the device saw (FCS, length, ...)
};

// One thread uses a port.
class Port {
 public:
  virtual ~Port() = default;

  // Hot calls first. receive: what has come, one reference each, at most into.size(); returns how many. Never blocks.
  virtual std::size_t receive(std::span<Frame> into) = 0;
  // send: takes frames from the front and returns how many; with a taken frame its references are the port's. Fewer
  // than offered means "full": the rest stays the caller's. Order is kept. Never blocks.
  virtual std::size_t send(std::span<const OutgoingFrame> batch) = 0;

  virtual bool is_up() const { return true; }
  virtual std::string name() const = 0;
  virtual PortStats stats() const = 0;  // from any thread
};

}  // namespace netfold::link

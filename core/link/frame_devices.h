// A library of frame devices (link/dpdk/) provides to a switch: buffers, ports as each thread uses them, and ways
// between the threads. Set-up and slow calls only; frames move through frame_port.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "link/frame_port.h"

namespace netfold::link {

struct FrameDeviceOptions {
  std::vector<std::string> ports;   // device strings; the port numbers are their places
  std::uint16_t threads = 1;        // that send
  std::uint16_t receivers = 1;      // receive queues wished a port, for threads 0 .. receivers-1
  std::size_t buffers = 32768;      // all together; a device may hold some thousand
  std::size_t room_bytes = 2048;    // of a buffer, behind its headroom
  std::size_t queue_frames = 1024;  // of a queue of a port, where the device lets one choose
};

// The other end of a port in memory: what a generator offers there, the port receives.
class FarEnd {
 public:
  virtual ~FarEnd() = default;
  // Accepts frames, and the references to them, from the front; fewer than offered: the queue is full.
  virtual std::size_t offer(std::uint16_t queue, std::span<const Frame> frames) = 0;
  virtual std::size_t collect(std::uint16_t queue, std::span<OutgoingFrame> into) = 0;
};

class FrameDevices {
 public:
  virtual ~FrameDevices() = default;

  virtual BufferPool& pool() = 0;
  virtual std::size_t ports() const = 0;
  // The port as `thread` uses it: it receives from queue thread % receive_queues(number), where it must be the only
  // one.
  virtual Port& port(PortNumber number, std::uint16_t thread) = 0;
  virtual std::uint16_t receive_queues(PortNumber number) const = 0;
  // Where other threads send what `thread` shall receive.
  virtual Port& inbox(std::uint16_t thread) = 0;

  virtual FarEnd* far_end(PortNumber) { return nullptr; }  // of a port in memory

  virtual void enter_thread() {}  // called by each thread before it touches a port, and after
  virtual void leave_thread() {}
  virtual void watch_links() {}  // by a thread with time, about once a second: is_up() is as of then
};

}  // namespace netfold::link

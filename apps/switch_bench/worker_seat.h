// A worker at the end of a cable, as its kernel sees it: an interface (a tap, in a network namespace of its own, so
// that no route or address of this machine matters) through which the worker joins its job. The generator carries
// frames between it and the cable, all but gradients; so control connections, ARP and ping need no network besides the
// one that is measured, and no driver of the kernel at the cable.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "engine/control_connection.h"
#include "frames/mac_address.h"
#include "link/descriptor.h"
#include "link/frame_port.h"

namespace netfold::apps {

class WorkerSeat {
 public:
  // Begins to join at once, on a thread of its own, with `join.rank` and from address `ip`.
  WorkerSeat(std::uint32_t ip, engine::JoinOptions join);
  ~WorkerSeat();  // gives up, if it still joins
  WorkerSeat(const WorkerSeat&) = delete;

  // To be called often until it has ended, and often enough for heartbeats after that. to_kernel takes what came in and
  // is for this worker or for all; from_kernel sends what the kernel has to say.
  void to_kernel(std::span<const std::byte> frame);
  void from_kernel(link::Port& port, link::BufferPool& pool);

  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  // Once it has ended: the connection, for the caller's thread; or why there is none.
  Result<engine::ControlConnection*> joined();
  // Says goodbye, on the thread of its own; has_ended() is false until it is said.
  void leave();

  std::uint32_t ip() const { return ip_; }
  frames::MacAddress mac() const { return mac_; }
  frames::MacAddress switch_mac() const { return switch_mac_; }  // of the switch as this worker sees it, once joined

 private:
  Result<void> open_tap();

  std::uint32_t ip_, switch_ip_ = 0;
  engine::JoinOptions join_;
  std::atomic<bool> has_ended_{false}, gives_up_{false}, is_open_{false};
  frames::MacAddress mac_, switch_mac_;
  std::optional<link::Descriptor> tap_;
  Result<std::unique_ptr<engine::ControlConnection>> connection_;
  std::thread thread_;
};

}  // namespace netfold::apps

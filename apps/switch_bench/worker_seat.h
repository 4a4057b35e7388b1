// A worker at the end of a cable, as its kernel sees it: an interface through which the worker joins its job. It is a
// tap in a network namespace of its own, so no route or address of this machine matters. The generator carries frames
// between it and the cable, all but gradients; so control connections, ARP and ping need no network besides the one
// that is measured, and no driver of the kernel at the cable.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "group/via_switch/joining.h"
#include "link/descriptor.h"
#include "link/frame_port.h"
#include "switch/ethernet/mac_address.h"

namespace netfold::apps {

class TapWorker {
 public:
  // Begins to join at once, on a thread of its own, with `join.rank` and from address `ip`.
  TapWorker(std::uint32_t ip, group::JoinOptions join);
  ~TapWorker();  // gives up, if it still joins
  TapWorker(const TapWorker&) = delete;

  // To be called often until it has ended, and often enough for heartbeats after that. to_kernel takes what came in and
  // is for this worker or for all; from_kernel sends what the kernel has to say.
  void to_kernel(std::span<const std::byte> frame);
  void from_kernel(link::Port& port, link::BufferPool& pool);

  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  // The connection, for the caller's thread, or the error of joining. Call it after has_ended().
  Result<group::ControlConnection*> joined();
  // Says goodbye, on the thread of its own; has_ended() is false until it is said.
  void leave();

  std::uint32_t ip() const { return ip_; }
  switching::MacAddress mac() const { return mac_; }
  switching::MacAddress switch_mac() const { return switch_mac_; }  // of the switch as this worker sees it, once joined

 private:
  Result<void> open_tap();

  std::uint32_t ip_, switch_ip_ = 0;
  group::JoinOptions join_;
  std::atomic<bool> has_ended_{false}, gives_up_{false}, is_open_{false};
  switching::MacAddress mac_, switch_mac_;
  std::optional<link::Descriptor> tap_;
  Result<std::unique_ptr<group::ControlConnection>> connection_;
  std::thread thread_;
};

}  // namespace netfold::apps

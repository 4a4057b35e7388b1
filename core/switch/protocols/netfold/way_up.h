// The way to the switch above, for an Ethernet switch that is below another one. It has no address and no ARP of its
// own: its host speaks to the switch above (control connections), through one of its ports. The frames of the host show
// the addresses to use. All threads see frames, and read and write it; a thread that reads while the way changes may
// mix the old one and the new one, and that frame is lost like others. A stranger who sends frames in the host's name
// can lead sums astray, as with ARP.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "switch/ethernet/headers.h"

namespace netfold::switching {

class WayUp {
 public:
  struct Addresses {
    MacAddress to, from;
    std::uint32_t ip_from;
  };

  // Of a control thread, before the first job; only where there is a switch above.
  void set_parent(std::uint32_t ip) { parent_.store(ip, std::memory_order_relaxed); }

  // A frame that the host has sent, without tags.
  void look_at(const ParsedFrame& frame) {
    if (frame.ip.to != parent_.load(std::memory_order_relaxed) || frame.tags > 0) return;
    to_.store(frame.to.number, std::memory_order_relaxed);
    from_.store(frame.from.number, std::memory_order_relaxed);
    ip_from_.store(frame.ip.from, std::memory_order_relaxed);
  }

  // Nothing until the host has sent a frame there.
  std::optional<Addresses> addresses() const {
    const Addresses found{{to_.load(std::memory_order_relaxed)},
                          {from_.load(std::memory_order_relaxed)},
                          ip_from_.load(std::memory_order_relaxed)};
    return found.ip_from == 0 ? std::nullopt : std::optional(found);
  }

 private:
  std::atomic<std::uint32_t> parent_{0}, ip_from_{0};
  std::atomic<std::uint64_t> to_{0}, from_{0};
};

}  // namespace netfold::switching

// Links within one thread: what is sent is there at once, in order. The wire of simulated worlds; wrap it in a fault
// injector to make it a bad one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "link/link.h"

namespace netfold::link {

class MemoryNetwork {
 public:
  // The link of `port` (ip 0). One link a port; it must not outlive the network.
  std::unique_ptr<Link> open(std::uint16_t port);

 private:
  friend class MemoryLink;
  struct Datagram {
    Address from;
    std::vector<std::byte> bytes;
  };
  std::unordered_map<std::uint16_t, std::deque<Datagram>> queues_;
};

}  // namespace netfold::link

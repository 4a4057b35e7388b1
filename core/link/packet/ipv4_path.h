// An endpoint that makes its own IPv4 frames asks the kernel for its address at an interface, and for the Ethernet
// address of the next hop to another endpoint.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "link/descriptor.h"

namespace netfold::link {

// Addresses as numbers, the first byte highest. kSystem if the interface has no IPv4 address.
Result<std::uint32_t> ipv4_address(const std::string& interface);

// The Ethernet address for frames from `interface` to the IPv4 address `to`. If the kernel's routes say that `to` is in
// the interface's own network, it is `direct`. Otherwise it is the gateway's, for which the kernel is made to ask
// (ARP). It waits at most a second for the answer. kSystem if the kernel has no route, or the gateway is silent.
Result<std::uint64_t> next_hop(const std::string& interface, std::uint32_t to, std::uint64_t direct);

// While it lives, the kernel throws datagrams to this UDP port away, where it would answer "port unreachable": an
// endpoint over a packet socket reads them beside the kernel. Another program may own the port: then nothing is done.
class SilencedPort {
 public:
  SilencedPort(std::uint32_t address, std::uint16_t port);

 private:
  Descriptor descriptor_;
};

}  // namespace netfold::link

// UDP over IPv4 or IPv6 with sendmmsg and recvmmsg, and with segmentation offload (GSO) and receive offload (GRO) where
// the kernel has them. A run of equally long datagrams to one address crosses the kernel as one.
#pragma once

#include <memory>

#include "link/link.h"
#include "link/road.h"

namespace netfold::link {

struct UdpOptions {
  Address bind = {0, 0};  // at :: it reaches IPv4 addresses too
  Road road = {};
  std::size_t buffer_bytes = 16u << 20;  // asked for the socket's buffers; the kernel may grant less
  // Datagrams that travel as one through the kernel; 1 switches GSO off. More saves calls, but a shaped or slow link
  // lets such a train pass only whole: 16 are 24 kB, 1 ms at 200 Mbit/s.
  std::size_t segments_max = 16;
  bool receive_offload = true;
};

Result<std::unique_ptr<Link>> open_udp(const UdpOptions& options);

}  // namespace netfold::link

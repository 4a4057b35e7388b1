// By which interface a socket's packets leave this machine, and how they ask the network to treat them.
#pragma once

#include <cstdint>
#include <string>

#include "base/ip_address.h"
#include "base/result.h"

namespace netfold::link {

struct Road {
  std::uint8_t dscp = 0;       // 0 to kDscpMax, in the header of each packet; 0: as usual
  std::string interface = {};  // "": as the routing table says

  static constexpr int kDscpMax = 63;
};

// A socket of this type (SOCK_STREAM or SOCK_DGRAM, with flags), for addresses of the family of `ip`. Errors:
// kInvalidArgument for an interface that this machine does not have, kSystem where the kernel gives this user no socket
// or no choice of the interface.
Result<int> open_socket(const IpAddress& ip, int type, const Road& road);

// An address of the interface in the family of `like`, that other machines can reach. kInvalidArgument if it has no
// such address.
Result<IpAddress> address_of_interface(const std::string& interface, const IpAddress& like);

}  // namespace netfold::link

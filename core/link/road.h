// By which interface a socket's packets leave this machine, and how they ask the network to treat them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace netfold::link {

struct Road {
  std::uint8_t dscp = 0;       // 0 to kDscpMax, in the header of each packet; 0: as usual
  std::string interface = {};  // "": as the routing table says

  static constexpr int kDscpMax = 63;
};

// For a socket of `family` (AF_INET or AF_INET6) that is not connected yet. Errors: kInvalidArgument for an interface
// that this machine does not have, kSystem where the kernel does not let this user choose it.
Result<void> take_road(int descriptor, int family, const Road& road);

}  // namespace netfold::link

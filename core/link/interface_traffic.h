// How many bytes the interfaces of this machine carry, of all its programs together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ip_address.h"

namespace netfold::link {

struct InterfaceTraffic {
  std::uint64_t received_bytes = 0, sent_bytes = 0;  // of frames, since the interface exists

  bool operator==(const InterfaceTraffic&) const = default;
};

// The interface that has this address; "" if none has, or it is the loopback, which has no link.
std::string interface_with(const IpAddress& ip);

// Nothing if this machine has no such interface, or its kernel does not say.
std::optional<InterfaceTraffic> traffic_of(const std::string& interface);

// The same from the text of /proc/net/dev.
std::optional<InterfaceTraffic> traffic_in(std::string_view table, const std::string& interface);

}  // namespace netfold::link

#include "link/road.h"

#include <fmt/core.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace netfold::link {

Result<void> take_road(int descriptor, int family, const Road& road) {
  if (road.dscp != 0) {
    const int traffic_class = road.dscp << 2, priority = road.dscp >> 3;
    // A socket of IPv6 that serves IPv4 as well needs both.
    setsockopt(descriptor, IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
    if (family == AF_INET6) {
      setsockopt(descriptor, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof traffic_class);
    }
    // The queue on this machine. 7 needs CAP_NET_ADMIN; without it the kernel's own choice stays.
    setsockopt(descriptor, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
  }
  if (road.interface.empty()) return {};
  if (if_nametoindex(road.interface.c_str()) == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("this machine has no interface '{}': `ip -br link` lists them", road.interface));
  }
  const auto length = static_cast<socklen_t>(road.interface.size());
  if (setsockopt(descriptor, SOL_SOCKET, SO_BINDTODEVICE, road.interface.c_str(), length) == 0) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot send by interface {}: {}; before Linux 5.7 that needs CAP_NET_RAW", road.interface,
                          std::strerror(errno)));
}

}  // namespace netfold::link

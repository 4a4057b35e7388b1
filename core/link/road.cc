#include "link/road.h"

#include <fmt/core.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "link/descriptor.h"
#include "link/socket_address.h"

namespace netfold::link {

namespace {

tl::unexpected<Error> no_such_interface(const std::string& name) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("this machine has no interface '{}': `ip -br link` lists them", name));
}

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
  if (if_nametoindex(road.interface.c_str()) == 0) return no_such_interface(road.interface);
  const auto length = static_cast<socklen_t>(road.interface.size());
  if (setsockopt(descriptor, SOL_SOCKET, SO_BINDTODEVICE, road.interface.c_str(), length) == 0) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot send by interface {}: {}; before Linux 5.7 that needs CAP_NET_RAW", road.interface,
                          std::strerror(errno)));
}

}  // namespace

Result<int> open_socket(const IpAddress& ip, int type, const Road& road) {
  const int family = family_of(ip);
  Descriptor opened(socket(family, type, 0));
  if (!opened.is_open()) {
    return tl::unexpected(system_error("cannot open a socket"));
  }
  const int off = 0;
  if (family == AF_INET6) setsockopt(opened.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (const auto taken = take_road(opened.get(), family, road); !taken) return tl::unexpected(taken.error());
  return opened.release();
}

Result<IpAddress> address_of_interface(const std::string& interface, const IpAddress& like) {
  if (if_nametoindex(interface.c_str()) == 0) return no_such_interface(interface);
  const auto all = interface_addresses();
  if (!all) return tl::unexpected(all.error());
  for (const InterfaceAddress& each : *all) {
    if (each.interface != interface || each.ip.is_v4() != like.is_v4()) continue;
    if (each.ip.scope() == 0) return each.ip;  // others cannot use an address that needs the name of our interface
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("interface {} has no {} address: `ip -br address` lists them",
                                                       interface, like.is_v4() ? "IPv4" : "IPv6"));
}

}  // namespace netfold::link

#include "link/socket_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace netfold::link {
namespace {

IpAddress any_v6() {
  static constexpr std::array<std::byte, IpAddress::kBytes> kZeros{};
  return IpAddress::from_v6(kZeros);
}

}  // namespace

SocketAddress::SocketAddress(const Address& address, int family) : v6_{} {
  if (family == AF_INET) {
    v4_.sin_family = AF_INET;
    v4_.sin_addr.s_addr = htonl(address.ip.v4());
    v4_.sin_port = htons(address.port);
    return;
  }
  v6_.sin6_family = AF_INET6;
  const auto bytes = address.ip.v6();
  std::memcpy(&v6_.sin6_addr, bytes.data(), bytes.size());
  v6_.sin6_scope_id = address.ip.scope();
  v6_.sin6_port = htons(address.port);
}

SocketAddress::SocketAddress(const sockaddr& given) : v6_{} {
  std::memcpy(&any_, &given, given.sa_family == AF_INET ? sizeof v4_ : sizeof v6_);
}

Address SocketAddress::address() const {
  if (any_.sa_family == AF_INET) return {ntohl(v4_.sin_addr.s_addr), ntohs(v4_.sin_port)};
  std::array<std::byte, IpAddress::kBytes> bytes{};
  std::memcpy(bytes.data(), &v6_.sin6_addr, bytes.size());
  return {IpAddress::from_v6(bytes, v6_.sin6_scope_id), ntohs(v6_.sin6_port)};
}

IpAddress all_addresses() {
  const int probe = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return {};
  close(probe);
  return any_v6();
}

IpAddress any_like(const IpAddress& ip) {
  return ip.is_v4() ? IpAddress() : any_v6();
}

Address local_address_of(int descriptor) {
  SocketAddress at;
  socklen_t size = SocketAddress::kSizeMax;
  getsockname(descriptor, at.get(), &size);
  return at.address();
}

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return tl::unexpected(system_error("cannot read this machine's addresses"));
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    if (each->ifa_addr->sa_family != AF_INET && each->ifa_addr->sa_family != AF_INET6) continue;
    found.push_back(
        {each->ifa_name, SocketAddress(*each->ifa_addr).address().ip, (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  freeifaddrs(all);
  return found;
}

}  // namespace netfold::link

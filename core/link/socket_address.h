// Addresses as the kernel's sockets take them, and sockets bound to one. A socket at :: serves IPv4 as well: there an
// IPv4 address travels as IPv6 maps it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "link/link.h"

namespace netfold::link {

class SocketAddress {
 public:
  SocketAddress() : v6_{} {}  // for the kernel to fill
  // For a socket of `family`: AF_INET or AF_INET6.
  SocketAddress(const Address& address, int family);
  // From the kernel or the resolver: of AF_INET or AF_INET6.
  explicit SocketAddress(const sockaddr& given);

  Address address() const;
  sockaddr* get() { return &any_; }
  const sockaddr* get() const { return &any_; }
  socklen_t size() const { return any_.sa_family == AF_INET ? sizeof v4_ : sizeof v6_; }
  static constexpr socklen_t kSizeMax = sizeof(sockaddr_in6);

 private:
  union {
    sockaddr any_;
    sockaddr_in v4_;
    sockaddr_in6 v6_;
  };
};

inline int family_of(const IpAddress& ip) {
  return ip.is_v4() ? AF_INET : AF_INET6;
}
// Every address of this machine: :: if its kernel has IPv6, else 0.0.0.0.
IpAddress all_addresses();
// Every address of this machine in the family of `ip`.
IpAddress any_like(const IpAddress& ip);

Address local_address_of(int descriptor);

struct InterfaceAddress {
  std::string interface;
  IpAddress ip;
  bool is_loopback;
};
// Of all interfaces of this machine, IPv4 and IPv6.
Result<std::vector<InterfaceAddress>> interface_addresses();

}  // namespace netfold::link

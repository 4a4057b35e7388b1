#include "link/socket_address.h"

#include <unistd.h>

#include <array>
#include <cstring>

namespace netfold::link {
namespace {

std::span<std::byte, IpAddress::kBytes> bytes_of(in6_addr& address) {
  return std::span<std::byte, IpAddress::kBytes>(reinterpret_cast<std::byte*>(&address), IpAddress::kBytes);
}

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
  address.ip.copy_v6_to(bytes_of(v6_.sin6_addr));
  v6_.sin6_scope_id = address.ip.scope();
  v6_.sin6_port = htons(address.port);
}

Address SocketAddress::address() const {
  if (any_.sa_family == AF_INET) return {ntohl(v4_.sin_addr.s_addr), ntohs(v4_.sin_port)};
  in6_addr ip = v6_.sin6_addr;
  return {IpAddress::from_v6(bytes_of(ip), v6_.sin6_scope_id), ntohs(v6_.sin6_port)};
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

int open_socket(const IpAddress& ip, int type) {
  const int descriptor = socket(family_of(ip), type, 0);
  const int off = 0;
  if (descriptor >= 0 && !ip.is_v4()) setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return descriptor;
}

Address local_address_of(int descriptor) {
  SocketAddress at;
  socklen_t size = SocketAddress::kSizeMax;
  getsockname(descriptor, at.get(), &size);
  return at.address();
}

}  // namespace netfold::link

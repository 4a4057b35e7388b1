#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <fmt/core.h>

#include <charconv>

#include "link/link.h"

namespace netfold::link {

std::string to_string(Address address) {
  return fmt::format("{}.{}.{}.{}:{}", address.ip >> 24, address.ip >> 16 & 0xff, address.ip >> 8 & 0xff,
                     address.ip & 0xff, address.port);
}

Result<Address> parse_address(const std::string& host_and_port) {
  const std::size_t colon = host_and_port.rfind(':');
  unsigned port = 0;
  const char* const end = host_and_port.data() + host_and_port.size();
  if (colon == std::string::npos || colon == 0 ||
      std::from_chars(host_and_port.data() + colon + 1, end, port).ptr != end || colon + 1 == host_and_port.size() ||
      port > 65535) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an address: write host:port, for example 10.0.0.1:7171", host_and_port));
  }
  const std::string host = host_and_port.substr(0, colon);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    const char* const hint = if_nametoindex(host.c_str()) != 0 ? "; it is an interface: write an address of it" : "";
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot find host '{}': {}{}", host, gai_strerror(error), hint));
  }
  const auto* const address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  const Address result{ntohl(address->sin_addr.s_addr), static_cast<std::uint16_t>(port)};
  freeaddrinfo(found);
  return result;
}

}  // namespace netfold::link

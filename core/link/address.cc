#include <arpa/inet.h>
#include <fmt/core.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <charconv>

#include "base/comma_list.h"
#include "link/link.h"
#include "link/socket_address.h"

namespace netfold::link {
namespace {

// Nothing is sent.
bool has_way_to(const addrinfo& found) {
  const int probe = socket(found.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const bool reaches = connect(probe, found.ai_addr, found.ai_addrlen) == 0;
  close(probe);
  return reaches;
}

// The first IPv4 address to which this machine has a way, else the first such IPv6 address.
const addrinfo* best_of(const addrinfo* first) {
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
      if (each->ai_family == family && has_way_to(*each)) return each;
    }
  }
  return first;
}

}  // namespace

std::string to_string(Address address) {
  const std::string ip = to_string(address.ip);
  return address.ip.is_v4() ? fmt::format("{}:{}", ip, address.port) : fmt::format("[{}]:{}", ip, address.port);
}

Result<Address> parse_address(const std::string& host_and_port) {
  const std::size_t colon = host_and_port.rfind(':');
  unsigned port = 0;
  const char* const end = host_and_port.data() + host_and_port.size();
  std::string host = colon == std::string::npos ? "" : host_and_port.substr(0, colon);
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!is_bracketed && host.find(':') != std::string::npos) ||
      std::from_chars(host_and_port.data() + colon + 1, end, port).ptr != end || colon + 1 == host_and_port.size() ||
      port > 65535) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an address: write host:port, for example 10.0.0.1:7171 or [fd00::1]:7171",
                            host_and_port));
  }
  addrinfo hints{};
  hints.ai_family = is_bracketed ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    const char* const hint = if_nametoindex(host.c_str()) != 0 ? "; it is an interface: write an address of it" : "";
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot find host '{}': {}{}", host, gai_strerror(error), hint));
  }
  const addrinfo* const best = best_of(found);
  const Address result{SocketAddress(*best->ai_addr).address().ip, static_cast<std::uint16_t>(port)};
  freeaddrinfo(found);
  return result;
}

std::string to_string(std::span<const Address> addresses) {
  std::string text;
  for (const Address& each : addresses) text += (text.empty() ? "" : ",") + to_string(each);
  return text;
}

Result<std::vector<Address>> parse_addresses(const std::string& text) {
  std::vector<Address> addresses;
  for (const std::string& each : comma_list(text)) {
    const auto address = parse_address(each);
    if (!address) return tl::unexpected(address.error());
    addresses.push_back(*address);
  }
  return addresses;
}

}  // namespace netfold::link

#include "link/packet/ipv4_path.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/ip_address.h"
#include "link/socket_address.h"

namespace netfold::link {
namespace {

constexpr int kAsks = 100, kAskPeriodMs = 10;
constexpr std::uint16_t kDiscardPort = 9;
// Of the thread's network namespace, not of the process's first thread.
constexpr const char* kRoutes = "/proc/thread-self/net/route";

Descriptor any_socket() {
  return Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

SocketAddress address_of(std::uint32_t ip, std::uint16_t port) {
  return SocketAddress({ip, port}, AF_INET);
}

template <std::size_t kRoom>
void put_name(const std::string& interface, char (&into)[kRoom]) {
  std::memcpy(into, interface.data(), std::min(interface.size(), kRoom - 1));
}

// The gateway, or 0 if the route leads to `to` itself; empty without a route. The longest prefix wins, then the lowest
// metric.
std::optional<std::uint32_t> gateway_to(const std::string& interface, std::uint32_t to) {
  std::ifstream routes(kRoutes);
  std::optional<std::uint32_t> gateway;
  std::uint32_t longest = 0, least = 0;
  std::string line;
  std::getline(routes, line);  // the headings
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string name;
    std::uint32_t destination = 0, hop = 0, flags = 0, references = 0, used = 0, metric = 0, mask = 0;
    fields >> name >> std::hex >> destination >> hop >> flags >> std::dec >> references >> used >> metric >> std::hex >>
        mask;
    if (!fields || name != interface || (ntohl(destination) ^ to) & ntohl(mask)) continue;
    if (gateway && (ntohl(mask) < longest || (ntohl(mask) == longest && metric >= least))) continue;
    gateway = ntohl(hop);
    longest = ntohl(mask);
    least = metric;
  }
  return gateway;
}

std::optional<std::uint64_t> neighbour(int socket, const std::string& interface, std::uint32_t address) {
  arpreq request{};
  const SocketAddress asked = address_of(address, 0);
  std::memcpy(&request.arp_pa, asked.get(), asked.size());
  put_name(interface, request.arp_dev);
  if (ioctl(socket, SIOCGARP, &request) != 0 || (request.arp_flags & ATF_COM) == 0) return std::nullopt;
  std::uint64_t mac = 0;
  for (int i = 0; i < 6; ++i) mac = mac << 8 | static_cast<std::uint8_t>(request.arp_ha.sa_data[i]);
  return mac;
}

}  // namespace

Result<std::uint32_t> ipv4_address(const std::string& interface) {
  const Descriptor socket = any_socket();
  ifreq request{};
  put_name(interface, request.ifr_name);
  if (ioctl(socket.get(), SIOCGIFADDR, &request) != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("interface {} has no IPv4 address, which RoCE v2 needs: give it one (ip address add), or "
                            "use version 1",
                            interface));
  }
  sockaddr_in address{};
  std::memcpy(&address, &request.ifr_addr, sizeof address);
  return ntohl(address.sin_addr.s_addr);
}

Result<std::uint64_t> next_hop(const std::string& interface, std::uint32_t to, std::uint64_t direct) {
  const auto gateway = gateway_to(interface, to);
  if (!gateway) {
    const std::string there = to_string(IpAddress(to));
    return fail(ErrorCode::kSystem, fmt::format("the kernel has no route to {} over {}: add one (ip route add {} via "
                                                "GATEWAY dev {})",
                                                there, interface, there, interface));
  }
  if (*gateway == 0) return direct;
  const Descriptor socket = any_socket();
  for (int i = 0; i < kAsks; ++i) {
    if (const auto mac = neighbour(socket.get(), interface, *gateway)) return *mac;
    // The kernel asks for the gateway's address before it sends this.
    const SocketAddress discarded = address_of(*gateway, kDiscardPort);
    const char nothing = 0;
    sendto(socket.get(), &nothing, sizeof nothing, 0, discarded.get(), discarded.size());
    poll(nullptr, 0, kAskPeriodMs);
  }
  return fail(ErrorCode::kSystem,
              fmt::format("the gateway {} to {} does not answer at {}: see whether it is up (ip neighbour show)",
                          to_string(IpAddress(*gateway)), to_string(IpAddress(to)), interface));
}

SilencedPort::SilencedPort(std::uint32_t address, std::uint16_t port)
    : descriptor_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  setsockopt(descriptor_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // several jobs of a machine
  sock_filter nothing_passes = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog code{1, &nothing_passes};
  setsockopt(descriptor_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &code, sizeof code);
  const SocketAddress own = address_of(address, port);
  [[maybe_unused]] const int bound = bind(descriptor_.get(), own.get(), own.size());
}

}  // namespace netfold::link

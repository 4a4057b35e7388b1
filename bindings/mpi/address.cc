#include "address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace netfold::mpi {
namespace {

const std::string kLoopback = "127.0.0.1";

std::string host_name() {
  std::array<char, 64> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// "" for what no other machine can reach, or only with the name of an interface.
std::string outward(const sockaddr* address, int family) {
  if (address == nullptr || address->sa_family != family) return "";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family == AF_INET) {
    const in_addr ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    inet_ntop(AF_INET, &ip, text.data(), text.size());
    return ntohl(ip.s_addr) >> 24 == 127 ? "" : text.data();
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip)) return "";
  inet_ntop(AF_INET6, &ip, text.data(), text.size());
  return std::string("[") + text.data() + "]";
}

std::string address_of(int family) {
  std::string found;
  addrinfo hints{};
  hints.ai_family = family;
  addrinfo* named = nullptr;
  if (getaddrinfo(host_name().c_str(), nullptr, &hints, &named) == 0) {
    found = outward(named->ai_addr, family);
    freeaddrinfo(named);
  }
  ifaddrs* interfaces = nullptr;
  if (found.empty() && getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* each = interfaces; each != nullptr && found.empty(); each = each->ifa_next) {
      if ((each->ifa_flags & IFF_UP) != 0) found = outward(each->ifa_addr, family);
    }
    freeifaddrs(interfaces);
  }
  return found;
}

}  // namespace

std::string own_network() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (boot.empty() || stat("/proc/self/ns/net", &space) != 0) return host_name();
  return fmt::format("{} {}", boot, space.st_ino);
}

std::string own_address() {
  for (const int family : {AF_INET, AF_INET6}) {
    if (const std::string found = address_of(family); !found.empty()) return found;
  }
  return kLoopback;
}

}  // namespace netfold::mpi

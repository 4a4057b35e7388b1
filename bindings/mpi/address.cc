#include "address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace netfold::mpi {
namespace {

const std::string kLoopback = "127.0.0.1";

// "" for what no other machine can reach.
std::string outward(const sockaddr* address) {
  if (address == nullptr || address->sa_family != AF_INET) return "";
  const in_addr ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &ip, text.data(), text.size());
  return ntohl(ip.s_addr) >> 24 == 127 ? "" : text.data();
}

}  // namespace

std::string host_name() {
  std::array<char, 64> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string own_address() {
  std::string found;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* named = nullptr;
  if (getaddrinfo(host_name().c_str(), nullptr, &hints, &named) == 0) {
    found = outward(named->ai_addr);
    freeaddrinfo(named);
  }
  ifaddrs* interfaces = nullptr;
  if (found.empty() && getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* each = interfaces; each != nullptr && found.empty(); each = each->ifa_next) {
      if ((each->ifa_flags & IFF_UP) != 0) found = outward(each->ifa_addr);
    }
    freeifaddrs(interfaces);
  }
  return found.empty() ? kLoopback : found;
}

}  // namespace netfold::mpi

#include "nics.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/comma_list.h"
#include "link/socket_address.h"

namespace netfold::nccl {
namespace {

constexpr int kSpeedUnknown = 10000;  // Mbit/s, where a virtual interface tells nothing
constexpr std::size_t kNicsMax = 16;
constexpr const char* kUsual = "^lo,docker";

IpAddress ip_of(const sockaddr* address) {
  return link::SocketAddress(*address).address().ip;
}

bool is_usable(const ifaddrs& entry, int family) {
  if (entry.ifa_addr == nullptr || entry.ifa_addr->sa_family != family || (entry.ifa_flags & IFF_UP) == 0) return false;
  return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

Nic describe(const ifaddrs& entry) {
  Nic nic{.name = entry.ifa_name, .pci_path = "", .index = if_nametoindex(entry.ifa_name), .ip = ip_of(entry.ifa_addr)};
  if (entry.ifa_netmask != nullptr) nic.netmask = ip_of(entry.ifa_netmask);
  const std::filesystem::path about = std::filesystem::path("/sys/class/net") / nic.name;
  std::error_code error;
  const auto device = std::filesystem::canonical(about / "device", error);
  if (!error) nic.pci_path = device.string();
  std::ifstream(about / "speed") >> nic.speed_mbit_s;
  if (nic.speed_mbit_s <= 0) nic.speed_mbit_s = kSpeedUnknown;
  return nic;
}

}  // namespace

bool Nic::is_near(const IpAddress& other) const {
  const auto own = ip.v6(), mask = netmask.v6(), its = other.v6();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if ((own[i] & mask[i]) != (its[i] & mask[i])) return false;
  }
  return true;
}

bool takes(std::string_view filter, std::string_view name) {
  const bool excludes = filter.starts_with('^');
  if (excludes) filter.remove_prefix(1);
  const bool is_exact = filter.starts_with('=');
  if (is_exact) filter.remove_prefix(1);
  const bool matches = std::ranges::any_of(comma_list(filter), [&](const std::string& word) {
    return !word.empty() && (is_exact ? name == word : name.starts_with(word));
  });
  return matches != excludes;
}

std::vector<Nic> find_nics(const std::string& filter, const IpAddress& first_ip) {
  std::vector<Nic> wanted, others;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return {};
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
      if (!is_usable(*each, family)) continue;
      const auto is_known = [each](const Nic& nic) { return nic.name == each->ifa_name; };  // further addresses of one
      if (std::ranges::any_of(wanted, is_known) || std::ranges::any_of(others, is_known)) continue;
      (takes(filter.empty() ? kUsual : filter, each->ifa_name) ? wanted : others).push_back(describe(*each));
    }
  }
  freeifaddrs(interfaces);
  if (wanted.empty() && filter.empty()) wanted = std::move(others);
  std::ranges::stable_partition(wanted, [&first_ip](const Nic& nic) { return first_ip == nic.ip; });
  if (wanted.size() > kNicsMax) wanted.resize(kNicsMax);
  return wanted;
}

}  // namespace netfold::nccl

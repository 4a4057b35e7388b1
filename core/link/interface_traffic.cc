#include "link/interface_traffic.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>

#include "link/socket_address.h"

namespace netfold::link {

std::string interface_with(const IpAddress& ip) {
  const auto all = interface_addresses();
  if (!all) return {};
  const auto found =
      std::ranges::find_if(*all, [&](const InterfaceAddress& each) { return !each.is_loopback && each.ip == ip; });
  return found == all->end() ? "" : found->interface;
}

std::optional<InterfaceTraffic> traffic_of(const std::string& interface) {
  std::ifstream file("/proc/net/dev");  // of the network namespace that this process runs in
  return traffic_in(std::string(std::istreambuf_iterator(file), {}), interface);
}

std::optional<InterfaceTraffic> traffic_in(std::string_view table, const std::string& interface) {
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':'), begin = line.find_first_not_of(' ');
    if (colon == std::string::npos || line.substr(begin, colon - begin) != interface) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::array<std::uint64_t, 9> columns{};  // eight of what was received, then what was sent; bytes come first
    for (auto& column : columns) numbers >> column;
    if (numbers.fail()) return std::nullopt;
    return InterfaceTraffic{columns[0], columns[8]};
  }
  return std::nullopt;
}

}  // namespace netfold::link

#include "environment.h"

#include <fmt/format.h>

#include "link/link.h"
#include "link/tcp/control_socket.h"
#include "log.h"

namespace netfold::nccl {
namespace {

// The local address on the way to the first switch. If a switch cannot be reached, it warns and returns no address.
std::optional<IpAddress> way_to(const std::vector<std::string>& switches) {
  std::optional<IpAddress> first;
  for (const std::string& each : switches) {
    const auto address = link::parse_address(each);
    const auto route = address ? link::route_to(*address) : tl::unexpected(address.error());
    if (!route) {
      warn(fmt::format("no collectives in the network: NETFOLD_SWITCH={}: {}", each, route.error().message));
      return std::nullopt;
    }
    if (!first) first = route->local_ip;
  }
  return first;
}

Result<Environment> read_environment() {
  auto settings = read_settings();
  if (!settings) return tl::unexpected(settings.error());
  const auto ip = way_to(settings->switches);
  Environment found{std::move(*settings), {}, ip.has_value()};
  found.nics = find_nics(found.settings.interfaces, ip.value_or(IpAddress()));
  if (!found.nics.empty()) return found;
  return fail(ErrorCode::kSystem,
              fmt::format("no network interface is up, has an IP address and fits NCCL_SOCKET_IFNAME={}: see "
                          "`ip address`",
                          found.settings.interfaces));
}

}  // namespace

const Result<Environment>& environment() {
  static const Result<Environment> found = read_environment();
  return found;
}

}  // namespace netfold::nccl

#include "group/via_switch/switch_group.h"

#include <fmt/core.h>

#include <utility>

#include <nlohmann/json.hpp>

#include "link/fault_injector.h"
#include "link/pcap_writer.h"
#include "link/tcp/control_socket.h"
#include "link/udp.h"

namespace netfold::group {
namespace {

Result<std::unique_ptr<link::Link>> open_link(const SwitchGroupOptions& options) {
  const auto address = link::parse_address(options.switch_address);
  if (!address) return tl::unexpected(address.error());
  auto opened = link::open_udp({.bind = {link::any_like(address->ip), 0}, .road = options.road});
  if (!opened) return opened;
  auto link = std::move(*opened);
  if (!options.faults.empty()) {
    const auto faults = link::parse_faults(options.faults);
    if (!faults) return tl::unexpected(faults.error());
    link = link::inject_faults(std::move(link), *faults, &now);
  }
  if (options.pcap_path.empty()) return link;
  const auto route = link::route_to(*address, options.road);
  if (!route) return tl::unexpected(route.error());
  const link::Address local{route->local_ip, link->local_address().port};
  return link::capture(std::move(link), options.pcap_path, local);
}

}  // namespace

Result<std::unique_ptr<SwitchSession>> join_session(SwitchGroupOptions options) {
  auto link = open_link(options);
  if (!link) return tl::unexpected(link.error());
  options.udp_port = (*link)->local_address().port;
  auto control = join_switch(options, link->get());
  if (!control) return tl::unexpected(control.error());
  SwitchSessionOptions session;
  session.rank = options.rank;
  session.window = options.window;
  session.timeout = from_seconds(options.timeout_s);
  session.silence_max = options.silence_max;
  session.switch_name = switch_name(options);
  return std::make_unique<SwitchSession>(std::move(session), std::move(*link), std::move(*control));
}

Result<std::unique_ptr<SwitchGroup>> SwitchGroup::join(const SwitchGroupOptions& options) {
  auto session = join_session(options);
  if (!session) return tl::unexpected(session.error());
  std::unique_ptr<SwitchGroup> group(new SwitchGroup(options, (*session)->lease()));
  group->start(std::move(*session));
  return group;
}

SwitchGroup::SwitchGroup(const SwitchGroupOptions& options, wire::Lease lease)
    : Driver({.thread_name = fmt::format("nf-worker-{}", options.rank),
              .rank = options.rank,
              .core = options.core,
              .on_completion = options.on_completion,
              .closed = "this worker has left its job: join again"}),
      lease_(std::move(lease)) {}

nlohmann::json to_json(const wire::Lease& lease) {
  return {{"job", lease.job},
          {"epoch", lease.epoch},
          {"world", lease.world},
          {"slots", lease.slots},
          {"shards", lease.shards},
          {"payload_bytes", lease.payload_bytes},
          {"is_tagged", lease.keys.has_value()}};
}

}  // namespace netfold::group

#include "nic_group.h"

#include <fmt/core.h>

#include <utility>

#include "link/fault_injector.h"
#include "link/udp.h"
#include "nic_session.h"

namespace netfold::rtl {

Result<std::unique_ptr<NicGroup>> NicGroup::open(NicGroupOptions options) {
  if (options.peers.world > static_cast<int>(kMaxRing)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a ring of NICs has at most {} places, not {}", kMaxRing, options.peers.world));
  }
  if (options.peers.require_auth) {
    return fail(ErrorCode::kInvalidArgument, "the frames of these NICs carry no tags: unset NETFOLD_REQUIRE_AUTH");
  }
  if (const auto faults = link::parse_faults(options.faults); !faults) return tl::unexpected(faults.error());
  auto mesh = group::listen_for_peers(options.peers);
  if (!mesh) return tl::unexpected(mesh.error());
  return std::unique_ptr<NicGroup>(new NicGroup(std::move(options), std::move(*mesh)));
}

NicGroup::NicGroup(NicGroupOptions options, std::unique_ptr<group::Mesh> mesh)
    : Driver({.thread_name = fmt::format("nf-nic-{}", options.peers.rank),
              .rank = options.peers.rank,
              .core = options.peers.core,
              .on_completion = options.peers.on_completion}),
      options_(std::move(options)),
      mesh_(std::move(mesh)),
      address_(link::to_string(mesh_->addresses())) {}

Result<void> NicGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  const std::lock_guard connecting(connecting_);
  if (static_cast<int>(addresses.size()) != options_.peers.world || is_started() || is_closing()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("connect once, before closing, with the addresses of all {} ranks", options_.peers.world));
  }
  const auto goes_on = [&] { return !is_closing() && (!keep_going || keep_going()); };
  auto peers = group::connect_peers(*mesh_, options_.peers, addresses, order_, goes_on);
  if (!peers) return tl::unexpected(peers.error());
  std::vector<link::Address> parsed;
  for (const std::string& address : addresses) parsed.push_back(link::parse_addresses(address).value().front());
  auto udp = link::open_udp({.bind = {mesh_->addresses().front().ip, 0}});
  if (!udp) return tl::unexpected(udp.error());
  const auto faults = link::parse_faults(options_.faults).value();
  auto link = faults.any() ? link::inject_faults(std::move(*udp), faults, &now) : std::move(*udp);
  const group::PeerSessionOptions session{options_.peers.rank, options_.peers.world,
                                          from_seconds(options_.peers.timeout_s)};
  start(std::make_unique<NicSession>(session, std::move(peers->session), std::move(link), std::move(parsed)));
  return {};
}

}  // namespace netfold::rtl

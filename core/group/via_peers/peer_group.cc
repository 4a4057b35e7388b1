#include "group/via_peers/peer_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "link/tcp/tcp_stream.h"

namespace netfold::group {

Result<std::unique_ptr<Mesh>> listen_for_peers(const PeerGroupOptions& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of a world of {}: ranks are 0 to world - 1", options.rank, options.world));
  }
  const std::size_t roads = std::max<std::size_t>(options.interfaces.size(), 1);
  if (options.tcp_streams < 1 || static_cast<std::size_t>(options.tcp_streams) > link::kTcpStreamsMax / roads) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} TCP streams to a rank by {} interfaces: 1 to {} in all",
                                                         options.tcp_streams, roads, link::kTcpStreamsMax));
  }
  if (options.require_auth && options.secret.empty()) {
    return fail(ErrorCode::kInvalidArgument, "authenticated packets need a secret: give all ranks the same");
  }
  const auto address = link::parse_address(options.listen);
  if (!address) return tl::unexpected(address.error());
  auto mesh = Mesh::listen(options.rank, options.world, *address, options.shm, control::Secret::from(options.secret),
                           options.dscp, options.interfaces);
  if (!mesh) return mesh;
  (*mesh)->set_tcp_streams(options.tcp_streams);
  (*mesh)->set_tagged(options.require_auth);
  return mesh;
}

PeerSessionOptions session_options(const PeerGroupOptions& options) {
  return {options.rank, options.world, from_seconds(options.timeout_s), options.elastic};
}

Result<ConnectedPeers> connect_peers(Mesh& mesh, const PeerGroupOptions& options,
                                     const std::vector<std::string>& addresses, const std::vector<int>& order,
                                     const std::function<bool()>& keep_going) {
  std::vector<std::vector<link::Address>> parsed;
  for (const std::string& text : addresses) {
    auto each = link::parse_addresses(text);
    if (!each) return tl::unexpected(each.error());
    parsed.push_back(std::move(*each));
  }
  const Nanoseconds deadline = now() + from_seconds(options.timeout_s);
  auto connected = mesh.connect(parsed, deadline, keep_going);
  if (connected) connected = mesh.share_memory(DirectExecutor::shape_for(options.world), deadline, keep_going);
  if (!connected) {
    if (!keep_going || keep_going()) mesh.say_failed(connected.error());
    return tl::unexpected(connected.error());
  }
  const int local = mesh.local_peers();
  Plans plans(options.world, options.rank);
  plans.set_order(order);
  plans.set_networked(local + 1 < options.world);
  return ConnectedPeers{
      std::make_unique<PeerSession>(session_options(options), mesh.take_connections(), std::move(plans), now()),
      policy_among(local)};
}

tl::unexpected<Error> connects_once(int world, std::size_t addresses) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("connect once, before closing, with one address for each of the {} ranks, in their order ({} "
                          "given)",
                          world, addresses));
}

Result<std::unique_ptr<PeerGroup>> PeerGroup::open(PeerGroupOptions options) {
  auto mesh = listen_for_peers(options);
  if (!mesh) return tl::unexpected(mesh.error());
  return std::unique_ptr<PeerGroup>(new PeerGroup(std::move(options), std::move(*mesh)));
}

PeerGroup::PeerGroup(PeerGroupOptions options, std::unique_ptr<Mesh> mesh)
    : Driver({.thread_name = fmt::format("nf-rank-{}", options.rank),
              .rank = options.rank,
              .core = options.core,
              .has_thread = !options.inline_progress,
              .timeout = from_seconds(options.timeout_s),
              .on_completion = options.on_completion}),
      options_(std::move(options)),
      mesh_(std::move(mesh)),
      address_(link::to_string(mesh_->addresses())) {}

Result<void> PeerGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  const std::lock_guard connecting(connecting_);
  if (static_cast<int>(addresses.size()) != options_.world || is_started() || is_closing()) {
    return connects_once(options_.world, addresses.size());
  }
  const auto goes_on = [&] { return !is_closing() && (!keep_going || keep_going()); };
  auto peers = connect_peers(*mesh_, options_, addresses, order_, goes_on);
  if (!peers) return tl::unexpected(peers.error());
  shares_memory_ = peers->session->shares_memory();
  start(std::move(peers->session), peers->policy);
  return {};
}

// --- From one group to the next ---

void PeerGroup::keep(std::vector<int> ranks) {
  const std::lock_guard keeping(keeping_);
  std::erase_if(ranks, [&](int rank) { return rank < 0 || rank >= options_.world || rank == options_.rank; });
  keeps_ = std::move(ranks);
}

std::vector<int> PeerGroup::kept() const {
  const std::lock_guard keeping(keeping_);
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < kept_.peers.size(); ++rank) {
    if (kept_.peers[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void PeerGroup::drop_kept() {
  const std::lock_guard keeping(keeping_);
  kept_ = {};
}

void PeerGroup::before_leave(Session& session) {
  const std::lock_guard keeping(keeping_);
  if (!keeps_.empty()) static_cast<PeerSession&>(session).keep(keeps_);
}

void PeerGroup::after_leave(Session& session) {
  const std::lock_guard keeping(keeping_);
  if (!keeps_.empty()) kept_ = static_cast<PeerSession&>(session).take_kept();
}

Result<void> PeerGroup::adopt(PeerGroup& old, const std::vector<int>& old_ranks, const std::string& group) {
  const std::lock_guard connecting(connecting_);
  const auto world = static_cast<std::size_t>(options_.world);
  if (&old == this || old_ranks.size() != world || is_started()) {
    return fail(ErrorCode::kInvalidArgument,
                "adopt connections before connect, from another group, with its rank for each rank of this one");
  }
  if (old.options_.require_auth != options_.require_auth) {
    return fail(ErrorCode::kInvalidArgument, "the connections of a group carry tags or not: require_auth stays");
  }
  KeptPeers left;
  {
    const std::lock_guard keeping(old.keeping_);
    left = std::exchange(old.kept_, {});
  }
  KeptPeers kept{std::vector<std::unique_ptr<KeptPeer>>(world), std::move(left.bell)};
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (old_ranks[rank] == kNoRank) continue;
    const auto place = static_cast<std::size_t>(old_ranks[rank]);
    if (place >= left.peers.size() || !left.peers[place]) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the group has no connection to its rank {}", old_ranks[rank]));
    }
    kept.peers[rank] = std::move(left.peers[place]);
  }
  mesh_->carry_over(std::move(kept), group);
  return {};
}

}  // namespace netfold::group

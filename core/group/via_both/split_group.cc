#include "group/via_both/split_group.h"

#include <fmt/format.h>

#include <utility>

namespace netfold::group {

Result<std::unique_ptr<SplitGroup>> SplitGroup::open(PeerGroupOptions among_ranks, SwitchGroupOptions at_switch) {
  if (among_ranks.world < 2) {
    return fail(ErrorCode::kInvalidArgument, "one rank has no tensor to divide: a group has at least two");
  }
  at_switch.rank = static_cast<std::uint16_t>(among_ranks.rank);
  at_switch.world = static_cast<std::uint16_t>(among_ranks.world);
  at_switch.timeout_s = among_ranks.timeout_s;
  auto mesh = listen_for_peers(among_ranks);
  if (!mesh) return tl::unexpected(mesh.error());
  return std::unique_ptr<SplitGroup>(new SplitGroup(std::move(among_ranks), std::move(at_switch), std::move(*mesh)));
}

SplitGroup::SplitGroup(PeerGroupOptions among_ranks, SwitchGroupOptions at_switch, std::unique_ptr<Mesh> mesh)
    : Driver({.thread_name = fmt::format("nf-both-{}", among_ranks.rank),
              .rank = among_ranks.rank,
              .core = among_ranks.core,
              .timeout = from_seconds(among_ranks.timeout_s),
              .on_completion = among_ranks.on_completion}),
      among_ranks_(std::move(among_ranks)),
      at_switch_(std::move(at_switch)),
      mesh_(std::move(mesh)),
      address_(link::to_string(mesh_->address())) {}

Result<void> SplitGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  const std::lock_guard connecting(connecting_);
  if (static_cast<int>(addresses.size()) != among_ranks_.world || is_started() || is_closing()) {
    return connects_once(among_ranks_.world, addresses.size());
  }
  const auto goes_on = [&] { return !is_closing() && (!keep_going || keep_going()); };
  auto peers = connect_peers(*mesh_, among_ranks_, addresses, order_, goes_on);
  if (!peers) return tl::unexpected(peers.error());
  SwitchGroupOptions at_switch = at_switch_;
  at_switch.keep_going = goes_on;
  auto in_switch = join_session(std::move(at_switch));
  if (!in_switch) {
    peers->session->leave(in_switch.error(), now());
    return tl::unexpected(in_switch.error());
  }
  // The ranks' wait policy would look at their memory and not at the switch's packets: this driver sleeps at once.
  start(std::make_unique<SplitSession>(among_ranks_.rank, among_ranks_.world, std::move(*in_switch),
                                       std::move(peers->session), share_));
  return {};
}

}  // namespace netfold::group

#include "group/via_both/split_group.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "group/via_both/rejoining.h"

namespace netfold::group {
namespace {

// The job goes on without a switch, and takes it back. So it does not wait for one that hangs as long as a job that
// needs its switch. A machine with too much to do is slower than this only now and then.
constexpr Nanoseconds kSilenceMax = 1500 * kMillisecond;

// A file for the packets of one of several jobs: `what` comes before the suffix.
std::string renamed(const std::string& path, const std::string& what) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() / fmt::format("{}.{}{}", whole.stem().string(), what, whole.extension().string()))
      .string();
}

// Behind them come the jobs for reduce-scatters (split_session.h).
std::vector<SwitchGroupOptions> with_scatters(std::vector<SwitchGroupOptions> at_switches) {
  for (std::size_t switches = at_switches.size(), at = 0; at < switches; ++at) {
    SwitchGroupOptions scatters = at_switches[at];
    scatters.job += "/scatters";
    if (!scatters.pcap_path.empty()) scatters.pcap_path = renamed(scatters.pcap_path, "scatters");
    at_switches.push_back(std::move(scatters));
  }
  return at_switches;
}

}  // namespace

Result<std::unique_ptr<SplitGroup>> SplitGroup::open(PeerGroupOptions among_ranks,
                                                     std::vector<SwitchGroupOptions> at_switches) {
  if (among_ranks.world < 2) {
    return fail(ErrorCode::kInvalidArgument, "one rank has no tensor to divide: a group has at least two");
  }
  if (at_switches.empty()) return fail(ErrorCode::kInvalidArgument, "name the switch, as host:port, or several");
  for (std::size_t at = 0; at < at_switches.size(); ++at) {
    SwitchGroupOptions& each = at_switches[at];
    each.rank = static_cast<std::uint16_t>(among_ranks.rank);
    each.world = static_cast<std::uint16_t>(among_ranks.world);
    each.timeout_s = among_ranks.timeout_s;
    each.road.dscp = among_ranks.dscp;
    each.silence_max = std::min(kSilenceMax, from_seconds(among_ranks.timeout_s) / 2);
    if (at_switches.size() == 1) continue;
    each.job += fmt::format("#{}", at);
    if (!each.pcap_path.empty()) each.pcap_path = renamed(each.pcap_path, fmt::format("switch{}", at));
  }
  auto mesh = listen_for_peers(among_ranks);
  if (!mesh) return tl::unexpected(mesh.error());
  return std::unique_ptr<SplitGroup>(new SplitGroup(std::move(among_ranks), std::move(at_switches), std::move(*mesh)));
}

SplitGroup::SplitGroup(PeerGroupOptions among_ranks, std::vector<SwitchGroupOptions> at_switches,
                       std::unique_ptr<Mesh> mesh)
    : Driver({.thread_name = fmt::format("nf-both-{}", among_ranks.rank),
              .rank = among_ranks.rank,
              .core = among_ranks.core,
              .timeout = from_seconds(among_ranks.timeout_s),
              .on_completion = among_ranks.on_completion}),
      among_ranks_(std::move(among_ranks)),
      at_switches_(std::move(at_switches)),
      mesh_(std::move(mesh)),
      address_(link::to_string(mesh_->addresses())) {}

Result<void> SplitGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  const std::lock_guard connecting(connecting_);
  if (static_cast<int>(addresses.size()) != among_ranks_.world || is_started() || is_closing()) {
    return connects_once(among_ranks_.world, addresses.size());
  }
  const auto goes_on = [&] { return !is_closing() && (!keep_going || keep_going()); };
  auto peers = connect_peers(*mesh_, among_ranks_, addresses, order_, goes_on);
  if (!peers) return tl::unexpected(peers.error());
  std::vector<std::unique_ptr<SwitchSession>> in_switches;
  for (SwitchGroupOptions at_switch : at_switches_) {
    at_switch.keep_going = goes_on;
    auto in_switch = join_session(std::move(at_switch));
    if (!in_switch) {
      for (const auto& joined : in_switches) joined->leave(in_switch.error(), now());
      peers->session->leave(in_switch.error(), now());
      return tl::unexpected(in_switch.error());
    }
    in_switches.push_back(std::move(*in_switch));
  }
  // The ranks' wait policy would look at their memory and not at the switch's packets: this driver sleeps at once.
  start(std::make_unique<SplitSession>(session_options(among_ranks_), std::move(in_switches), std::move(peers->session),
                                       share_, std::make_unique<Rejoining>(with_scatters(at_switches_))));
  return {};
}

}  // namespace netfold::group

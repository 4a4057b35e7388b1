#include "group/via_agent/agent_group.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <utility>

#include "group/via_agent/messages.h"

namespace netfold::group {
namespace {

using nlohmann::json;

constexpr Nanoseconds kBeyondTimeout = 2 * kSecond;  // beyond what the agent itself may wait

}  // namespace

AgentGroup::AgentGroup(const std::string& agent, LocalSocket socket, double timeout_s, int world, int rank)
    : Driver({.thread_name = "",
              .rank = rank,
              .has_thread = false,
              .submits_at_once = true,
              .closed = "this worker has left its agent: open another group"}),
      timeout_s_(timeout_s),
      world_(world),
      rank_(rank),
      conversation_(std::make_shared<AgentConversation>(agent, std::move(socket), rank)) {}

Result<std::unique_ptr<AgentGroup>> AgentGroup::open(const std::string& agent, const PeerGroupOptions& options) {
  return introduced(agent, "host", to_json(options), options.timeout_s, options.world, options.rank, {});
}

Result<std::unique_ptr<AgentGroup>> AgentGroup::join(const std::string& agent, const SwitchGroupOptions& options) {
  auto group =
      introduced(agent, "switch", to_json(options), options.timeout_s, options.world, options.rank, options.keep_going);
  if (group) (*group)->begin();
  return group;
}

void AgentGroup::begin() {
  const AgentSessionOptions options{rank_, world_, from_seconds(timeout_s_)};
  start(std::make_unique<AgentSession>(options, std::move(*channel_), conversation_));
  channel_.reset();
}

Result<std::unique_ptr<AgentGroup>> AgentGroup::introduced(const std::string& agent, const char* kind,
                                                           const json& options, double timeout_s, int world, int rank,
                                                           const std::function<bool()>& keep_going) {
  auto socket = LocalSocket::connect(agent);
  if (!socket) {
    return fail(socket.error().code,
                fmt::format("no agent serves here: {}; start one with `netfold agent --socket {}`, or unset "
                            "NETFOLD_AGENT to let every worker start its own",
                            socket.error().message, agent));
  }
  std::unique_ptr<AgentGroup> group(new AgentGroup(agent, std::move(*socket), timeout_s, world, rank));
  if (auto introduced = group->introduce(kind, options, keep_going); !introduced) {
    return tl::unexpected(introduced.error());
  }
  return group;
}

Result<void> AgentGroup::introduce(const char* kind, const json& options, const std::function<bool()>& keep_going) {
  const auto peer = conversation_->socket().peer();
  if (!peer) return tl::unexpected(peer.error());
  if (peer->uid != geteuid()) {
    return fail(ErrorCode::kRefused, fmt::format("the agent at {} is user {}'s, not ours: it must not see our "
                                                 "memory",
                                                 conversation_->agent(), peer->uid));
  }
  conversation_->set_process(peer->pid);
  prctl(PR_SET_PTRACER, peer->pid, 0, 0, 0);  // where the kernel knows of no such permission, none is needed
  if (getrandom(&token_, sizeof token_, 0) != sizeof token_) token_ = static_cast<std::uint64_t>(now());
  token_ >>= 1;  // JSON's integers are signed for some
  const json opening = {{"open", kind},
                        {"version", kChannelVersion},
                        {"probe", reinterpret_cast<std::uintptr_t>(&token_)},
                        {"token", token_},
                        {"options", options}};
  auto message = conversation_->ask(opening, "opened", from_seconds(timeout_s_) + kBeyondTimeout, keep_going);
  if (!message) return tl::unexpected(message.error());
  opened_ = message->body["opened"];
  auto& descriptors = message->descriptors;
  if (descriptors.size() != 4 || !link::cannot_shrink(descriptors[0]) || !link::cannot_shrink(descriptors[1])) {
    return fail(ErrorCode::kSystem,
                fmt::format("the program at {} is not an agent of Netfold", conversation_->agent()));
  }
  auto mapping = link::Mapping::of(descriptors[0], 0, sizeof(Channel), true);
  if (!mapping) return tl::unexpected(mapping.error());
  channel_.emplace(AgentChannel{std::move(*mapping), std::move(descriptors[1]),
                                std::make_unique<Wakeup>(descriptors[2].release()),
                                std::make_unique<Wakeup>(descriptors[3].release())});
  return {};
}

Result<void> AgentGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  auto connected = conversation_->ask(to_json(Connecting{addresses, order_}), "connected",
                                      from_seconds(timeout_s_) + kBeyondTimeout, keep_going);
  if (!connected) return tl::unexpected(connected.error());
  if (channel_) begin();
  return {};
}

}  // namespace netfold::group

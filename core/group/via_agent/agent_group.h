// A worker's end of an agent: the same calls as a group in this process, but another process folds. It has no thread of
// its own: the threads that wait look for answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/driver.h"
#include "group/via_agent/agent_session.h"
#include "group/via_peers/peer_group.h"
#include "group/via_switch/switch_group.h"

namespace netfold::group {

class AgentGroup final : public Driver {
 public:
  // `agent`: where it listens, a path or @name. Errors: kSystem if no agent listens, or it may not reach our memory;
  // and those of PeerGroup::open and SwitchGroup::join. `keep_going` as there.
  //
  // A rank among others; then connect(), once. core and inline_progress are the agent's own affair.
  static Result<std::unique_ptr<AgentGroup>> open(const std::string& agent, const PeerGroupOptions& options);
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }  // as PeerGroup's, before connect()
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});
  // A worker of a job at a switch.
  static Result<std::unique_ptr<AgentGroup>> join(const std::string& agent, const SwitchGroupOptions& options);

  ~AgentGroup() override { close(); }

  nlohmann::json counters() const override { return conversation_->counters(); }  // the agent's

  const nlohmann::json& opened() const { return opened_; }  // a rank's "address", or the switch's lease

 private:
  AgentGroup(const std::string& agent, LocalSocket socket, double timeout_s, int world, int rank);

  static Result<std::unique_ptr<AgentGroup>> introduced(const std::string& agent, const char* kind,
                                                        const nlohmann::json& options, double timeout_s, int world,
                                                        int rank, const std::function<bool()>& keep_going);
  Result<void> introduce(const char* kind, const nlohmann::json& options, const std::function<bool()>& keep_going);
  void begin();

  const double timeout_s_;
  const int world_, rank_;
  const std::shared_ptr<AgentConversation> conversation_;
  std::vector<int> order_;
  std::uint64_t token_ = 0;  // that the agent must find in our memory
  nlohmann::json opened_;
  std::optional<AgentChannel> channel_;  // until the session has it
};

}  // namespace netfold::group

// A worker's session with an agent: addresses and counts into a queue in shared memory (channel.h), answers out of
// another. The agent folds; this end only sees whether it does, and puts back what it left half written.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/wakeup.h"
#include "group/session.h"
#include "group/via_agent/channel.h"
#include "group/via_agent/conversation.h"
#include "group/via_agent/undo_log.h"
#include "link/shared_memory.h"

namespace netfold::group {

// The memory and the bells that the agent shares with the worker.
struct AgentChannel {
  link::Mapping memory;  // a Channel
  Descriptor log;
  std::unique_ptr<Wakeup> request_bell, answer_bell;  // the worker rings the first, the agent the second

  Channel& channel() const { return *reinterpret_cast<Channel*>(memory.data()); }
};

struct AgentSessionOptions {
  int rank = 0, world = 1;
  Nanoseconds timeout = 30 * kSecond;  // for the agent to give a sign of life
};

class AgentSession final : public Session {
 public:
  AgentSession(AgentSessionOptions options, AgentChannel channel, std::shared_ptr<AgentConversation> conversation);

  Result<bool> move() override;
  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override { return std::exchange(finished_, {}); }
  bool is_idle() const override { return outstanding_.empty(); }
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  Nanoseconds deadline() const override;
  bool arm() override { return answers_.may_sleep(); }
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  nlohmann::json counters() const override { return nlohmann::json::object(); }  // the agent's: AgentGroup asks it

 private:
  bool take_answers();
  bool hand_in();
  std::optional<Error> verdict(Nanoseconds now) const;

  const AgentSessionOptions options_;
  AgentChannel channel_;
  std::shared_ptr<AgentConversation> conversation_;
  RequestWriter requests_;
  AnswerReader answers_;
  std::deque<Request> waiting_;           // that the queue had no place for
  std::map<Ticket, Extent> outstanding_;  // what each may write
  std::vector<Ticket> finished_;
  bool has_submitted_ = false;  // since the last pump
  Nanoseconds time_ = 0, submitted_at_ = 0;
  Nanoseconds gives_up_at_ = kNever;  // of leaving, once that has begun
  bool has_failed_ = false;
};

}  // namespace netfold::group

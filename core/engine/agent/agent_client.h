// A worker's end of an agent: the same calls as an engine in this process, but another process folds. This one only
// writes an address and a count into a queue, and sleeps until the answer is there; it has no thread of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/agent/channel.h"
#include "engine/agent/local_socket.h"
#include "engine/agent/undo_log.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/host_group.h"
#include "engine/wakeup.h"

namespace netfold::engine {

class AgentClient final : public Engine {
 public:
  // `agent`: where it listens, a path or @name. Errors: kSystem if nobody does, or it may not reach our memory; and
  // those of HostGroup::open and Client::join. `keep_going` as there.
  //
  // A rank among others; then connect(), once. core and inline_progress are the agent's own affair.
  static Result<std::unique_ptr<AgentClient>> open(const std::string& agent, const HostGroupOptions& options);
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }  // as HostGroup's, before connect()
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});
  // A worker of a job at a switch.
  static Result<std::unique_ptr<AgentClient>> join(const std::string& agent, const ClientOptions& options);

  ~AgentClient() override;  // close()

  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) override;
  std::optional<Completion> next_completion(Nanoseconds timeout) override;
  void close(std::optional<Error> error = std::nullopt) override;
  nlohmann::json counters() const override;  // the agent's; the last known ones if it does not answer

  const nlohmann::json& opened() const { return opened_; }  // a rank's "address", or the switch's lease

 private:
  AgentClient(std::string agent, LocalSocket socket, double timeout_s, int world, int rank);

  static Result<std::unique_ptr<AgentClient>> start(const std::string& agent, const char* kind,
                                                    const nlohmann::json& options, double timeout_s, int world,
                                                    int rank, const std::function<bool()>& keep_going);
  Result<void> introduce(const char* kind, const nlohmann::json& options, const std::function<bool()>& keep_going);
  Result<Message> ask(const nlohmann::json& question, const char* answer, Nanoseconds patience,
                      const std::function<bool()>& keep_going) const;
  Result<Ticket> hand_over(const AllReduce& request, const CollectiveOptions& how, bool is_awaited) override;
  template <class Take>
  std::optional<Completion> drive(Take take, Nanoseconds timeout);
  bool take_answers();
  bool drain();
  void sleep(Nanoseconds deadline);
  void fail(const Error& error);
  std::optional<Error> verdict() const;

  const std::string agent_;
  const LocalSocket socket_;
  const double timeout_s_;
  const int world_, rank_;
  std::vector<int> order_;
  pid_t agent_pid_ = 0;
  std::uint64_t token_ = 0;  // that the agent must find in our memory
  nlohmann::json opened_;

  std::optional<Mapping> channel_memory_;
  Channel* channel_ = nullptr;
  Descriptor log_;
  std::optional<Wakeup> request_bell_, answer_bell_;  // we ring the first, the agent the second
  Wakeup wakeup_;                                     // close() ends a sleep

  // Of whoever drives, that is: waits.
  std::mutex driving_;
  std::optional<AnswerReader> answers_;

  mutable std::mutex mutex_;
  std::optional<RequestWriter> requests_;
  std::map<Ticket, Extent> outstanding_;  // what each may write
  Nanoseconds submitted_at_ = 0;
  std::optional<Error> failure_;
  bool is_closed_ = false;

  mutable std::mutex asking_;  // one question at a time
  mutable nlohmann::json counters_ = nlohmann::json::object();

  Completions completions_;
};

}  // namespace netfold::engine

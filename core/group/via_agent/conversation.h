// A worker's questions to its agent beside the channel (messages.h), one at a time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "group/via_agent/local_socket.h"

namespace netfold::group {

class AgentConversation {
 public:
  AgentConversation(std::string agent, LocalSocket socket, int rank)
      : agent_(std::move(agent)), socket_(std::move(socket)), rank_(rank) {}

  const std::string& agent() const { return agent_; }
  std::string described() const;  // the agent and its process, for errors
  const LocalSocket& socket() const { return socket_; }
  void set_process(pid_t process) { process_ = process; }

  // The message that answers; the agent's own errors are handed on, anything else that goes wrong is the agent's fault.
  Result<Message> ask(const nlohmann::json& question, const char* answer, Nanoseconds patience,
                      const std::function<bool()>& keep_going) const;

  // The agent's counters; the last known ones if it does not answer, or is being left.
  nlohmann::json counters() const;

  // Once the worker has given up: returns when the agent writes no more into the worker's memory. An agent that stands
  // still in the middle of writing is killed. kSystem: that is not possible, and it may still write.
  Result<void> await_end_of_writing(const std::atomic<std::uint32_t>& agent_writes) const;

  // Asks the agent to close, then says whether it has: to be called again until it returns true. kSystem: it cannot.
  Result<bool> close(const std::string& reason);

 private:
  Result<Message> checked(Result<Message> message, const char* answer) const;

  const std::string agent_;
  const LocalSocket socket_;
  const int rank_;
  pid_t process_ = 0;

  mutable std::mutex asking_;
  bool is_closing_ = false;
  mutable nlohmann::json counters_ = nlohmann::json::object();
};

}  // namespace netfold::group

#include "group/via_agent/conversation.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "group/via_agent/messages.h"

namespace netfold::group {
namespace {

constexpr Nanoseconds kAnswerTime = 2 * kSecond;  // to a question that the agent can answer at once
constexpr Nanoseconds kWriteTime = 2 * kSecond;   // of a part, and of a process to end
constexpr auto kEndLookPeriod = std::chrono::milliseconds(1);

}  // namespace

std::string AgentConversation::described() const {
  return fmt::format("the agent at {} (process {}), which folds for rank {},", agent_, process_, rank_);
}

Result<Message> AgentConversation::ask(const nlohmann::json& question, const char* answer, Nanoseconds patience,
                                       const std::function<bool()>& keep_going) const {
  const std::lock_guard lock(asking_);
  if (auto sent = socket_.send(question); !sent) return checked(tl::unexpected(sent.error()), answer);
  return checked(socket_.await(now() + patience, keep_going), answer);
}

Result<Message> AgentConversation::checked(Result<Message> message, const char* answer) const {
  if (!message) {
    return fail(message.error().code, fmt::format("{} does not answer: {}", described(), message.error().message));
  }
  if (message->body.contains("error")) return tl::unexpected(error_of(message->body["error"]));
  if (message->body.contains(answer)) return message;
  return fail(ErrorCode::kSystem, fmt::format("the program at {} is not an agent of Netfold", agent_));
}

nlohmann::json AgentConversation::counters() const {
  {
    const std::lock_guard lock(asking_);
    if (is_closing_) return counters_;
  }
  auto answer = ask({{"count", true}}, "counters", kAnswerTime, {});
  const std::lock_guard lock(asking_);
  if (answer) counters_ = answer->body["counters"];
  return counters_;
}

Result<void> AgentConversation::await_end_of_writing(const std::atomic<std::uint32_t>& agent_writes) const {
  const auto ends_in_time = [&] {
    for (const Nanoseconds deadline = now() + kWriteTime; now() < deadline;
         std::this_thread::sleep_for(kEndLookPeriod)) {
      if (agent_writes.load(std::memory_order_acquire) == 0 || socket_.has_ended()) return true;
    }
    return false;
  };
  if (ends_in_time()) return {};
  if (process_ > 0 && process_ != getpid()) {  // it is the agent still: its end of the socket is open
    log::error("{} stands still while it writes into this process: it is killed", described());
    kill(process_, SIGKILL);
    if (ends_in_time()) return {};
  }
  return fail(ErrorCode::kSystem,
              fmt::format("{} stands still while it writes into this process: end both, the tensors may still change",
                          described()));
}

Result<bool> AgentConversation::close(const std::string& reason) {
  const std::lock_guard lock(asking_);
  if (!std::exchange(is_closing_, true)) {
    if (auto sent = socket_.send({{"close", reason}}); !sent) return tl::unexpected(sent.error());
    return false;
  }
  auto received = socket_.receive();
  if (!received) return tl::unexpected(received.error());
  if (!*received) return false;
  auto closed = checked(std::move(**received), "closed");
  if (!closed) return tl::unexpected(closed.error());
  counters_ = closed->body["closed"];
  return true;
}

}  // namespace netfold::group

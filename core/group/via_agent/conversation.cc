#include "group/via_agent/conversation.h"

#include <fmt/core.h>

#include <utility>

#include "group/via_agent/messages.h"

namespace netfold::group {
namespace {

constexpr Nanoseconds kAnswerTime = 2 * kSecond;  // to a question that the agent can answer at once

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

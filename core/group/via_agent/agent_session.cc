#include "group/via_agent/agent_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "group/via_peers/buffer_layout.h"

namespace netfold::group {
namespace {

constexpr Nanoseconds kLastAnswerTime = 2 * kSecond;  // of an agent that was given up
constexpr Nanoseconds kClosingTime = 10 * kSecond;    // for the agent's goodbyes
constexpr Nanoseconds kAgentLookPeriod = kSecond;     // whether the agent is alive

}  // namespace

AgentSession::AgentSession(AgentSessionOptions options, AgentChannel channel,
                           std::shared_ptr<AgentConversation> conversation)
    : options_(options),
      channel_(std::move(channel)),
      conversation_(std::move(conversation)),
      requests_(channel_.channel().requests),
      answers_(channel_.channel().answers) {}

Result<std::unique_ptr<Prepared>> AgentSession::prepare(const CollectiveRequest& request) {
  if (const auto valid = check(request); !valid) return tl::unexpected(valid.error());
  if (request.is_encoded) return fail(ErrorCode::kInvalidArgument, "an agent takes no encoded elements");
  const auto order = check(Request::of(1, request), options_.world, options_.rank);
  if (!order) return tl::unexpected(order.error());
  return nullptr;
}

void AgentSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared>) {
  const BufferLayout layout = buffer_layout_of(request.collective, request.count, options_.world, options_.rank);
  outstanding_[ticket] = {static_cast<std::byte*>(request.out), layout.out.count * numbers::size_bytes(request.type)};
  waiting_.push_back(Request::of(ticket, request));
  has_submitted_ = true;
}

// True if the queue took a request.
bool AgentSession::hand_in() {
  bool has_moved = false;
  while (!waiting_.empty() && requests_.push(waiting_.front())) {
    waiting_.pop_front();
    has_moved = true;
    if (requests_.reader_sleeps()) channel_.request_bell->wake();
  }
  return has_moved;
}

// True if there was an answer.
bool AgentSession::take_answers() {
  bool has_come = false;
  while (const auto answer = answers_.pop()) {
    has_come = true;
    if (outstanding_.erase(answer->ticket) > 0) finished_.push_back(answer->ticket);
  }
  return has_come;
}

Result<bool> AgentSession::move() {
  const bool has_come = take_answers();
  return hand_in() || has_come;
}

Result<bool> AgentSession::pump(Nanoseconds now) {
  time_ = now;
  if (std::exchange(has_submitted_, false)) submitted_at_ = now;
  const auto moved = move();
  if (*moved) return moved;
  const auto error = verdict(now);
  if (!error) return false;
  take_answers();  // what the agent did before it failed or died still counts
  return tl::unexpected(*error);
}

std::optional<Error> AgentSession::verdict(Nanoseconds now) const {
  const Channel& channel = channel_.channel();
  if (auto error = channel.failure.get()) return error;
  if (answers_.is_broken()) {
    return Error{ErrorCode::kSystem, fmt::format("the agent at {} answers nonsense", conversation_->agent()),
                 options_.rank};
  }
  if (conversation_->socket().has_ended()) {
    if (auto error = channel.failure.get()) return error;
    return Error{ErrorCode::kPeerFailed,
                 fmt::format("{} has ended: see what it said, and start it again", conversation_->described()),
                 options_.rank};
  }
  const Nanoseconds heard_at = std::max(channel.alive_at.load(std::memory_order_relaxed), submitted_at_);
  const Nanoseconds patience = std::max(options_.timeout, kAgentLookPeriod);
  if (outstanding_.empty() || now - heard_at <= patience) return std::nullopt;
  return Error{
      ErrorCode::kTimeout,
      fmt::format("{} has given no sign of life for {:g} s", conversation_->described(), to_seconds(options_.timeout)),
      options_.rank};
}

// An agent that is only slow learns that it must not write any more, and ends what it writes, before this end puts that
// back.
std::vector<Ticket> AgentSession::abort(const Error&, Nanoseconds) {
  has_failed_ = true;
  channel_.channel().worker_gave_up.store(1, std::memory_order_seq_cst);
  if (const auto ended = conversation_->await_end_of_writing(channel_.channel().agent_writes); !ended) {
    log::error("{}", ended.error().message);
  }
  if (const auto undone = undo(channel_.log, outstanding_); !undone) {
    log::error("tensors are left half folded: {}", undone.error().message);
  }
  std::vector<Ticket> tickets;
  for (const auto& [ticket, extent] : std::exchange(outstanding_, {})) tickets.push_back(ticket);
  waiting_.clear();
  return tickets;
}

bool AgentSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  if (gives_up_at_ == kNever) gives_up_at_ = now + (has_failed_ ? kLastAnswerTime : kClosingTime);
  const auto closed = conversation_->close(error ? error->message : "");
  if (closed && !*closed && now < gives_up_at_) return false;
  take_answers();
  return true;
}

Nanoseconds AgentSession::deadline() const {
  if (gives_up_at_ != kNever) return gives_up_at_;
  return time_ + std::min(kAgentLookPeriod, options_.timeout / 4);
}

void AgentSession::add_polls(std::vector<pollfd>& polls) const {
  const bool is_leaving = gives_up_at_ != kNever;
  polls.push_back({channel_.answer_bell->descriptor(), POLLIN, 0});
  polls.push_back({conversation_->socket().descriptor(), static_cast<short>(is_leaving ? POLLIN : POLLRDHUP), 0});
}

void AgentSession::on_wake(std::span<const pollfd> polls) {
  if (!polls.empty() && polls[0].revents != 0) channel_.answer_bell->clear();
}

}  // namespace netfold::group

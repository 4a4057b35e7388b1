#include "engine/agent/agent_client.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "engine/agent/messages.h"

namespace netfold::engine {
namespace {

using nlohmann::json;

constexpr Nanoseconds kAnswerTime = 2 * kSecond;    // to a question that the agent can answer at once
constexpr Nanoseconds kClosingTime = 10 * kSecond;  // for the engine's goodbyes
constexpr Nanoseconds kLookPeriod = kSecond;        // whether the agent is alive
constexpr Nanoseconds kFullPeriod = 100 * kMicrosecond;

Error closed_error() {
  return {ErrorCode::kInvalidArgument, "this worker has left its agent: open another group", kNoRank};
}

}  // namespace

AgentClient::AgentClient(std::string agent, LocalSocket socket, double timeout_s, int world, int rank)
    : agent_(std::move(agent)), socket_(std::move(socket)), timeout_s_(timeout_s), world_(world), rank_(rank) {}

AgentClient::~AgentClient() {
  close();
}

Result<std::unique_ptr<AgentClient>> AgentClient::open(const std::string& agent, const HostGroupOptions& options) {
  return start(agent, "host", to_json(options), options.timeout_s, options.world, options.rank, {});
}

Result<std::unique_ptr<AgentClient>> AgentClient::join(const std::string& agent, const ClientOptions& options) {
  return start(agent, "switch", to_json(options), options.timeout_s, options.world, options.rank, options.keep_going);
}

Result<std::unique_ptr<AgentClient>> AgentClient::start(const std::string& agent, const char* kind, const json& options,
                                                        double timeout_s, int world, int rank,
                                                        const std::function<bool()>& keep_going) {
  auto socket = LocalSocket::connect(agent);
  if (!socket) {
    return netfold::fail(socket.error().code,
                         fmt::format("no agent serves here: {}; start one with `netfold agent --socket {}`, or unset "
                                     "NETFOLD_AGENT to let every worker start its own",
                                     socket.error().message, agent));
  }
  auto client = std::unique_ptr<AgentClient>(new AgentClient(agent, std::move(*socket), timeout_s, world, rank));
  if (auto introduced = client->introduce(kind, options, keep_going); !introduced) {
    return tl::unexpected(introduced.error());
  }
  return client;
}

Result<void> AgentClient::introduce(const char* kind, const json& options, const std::function<bool()>& keep_going) {
  const auto peer = socket_.peer();
  if (!peer) return tl::unexpected(peer.error());
  if (peer->uid != geteuid()) {
    return netfold::fail(ErrorCode::kRefused, fmt::format("the agent at {} is user {}'s, not ours: it must not see our "
                                                          "memory",
                                                          agent_, peer->uid));
  }
  agent_pid_ = peer->pid;
  prctl(PR_SET_PTRACER, agent_pid_, 0, 0, 0);  // where the kernel knows of no such permission, none is needed
  if (getrandom(&token_, sizeof token_, 0) != sizeof token_) token_ = static_cast<std::uint64_t>(now());
  token_ >>= 1;  // JSON's integers are signed for some
  const json opening = {{"open", kind},
                        {"version", kChannelVersion},
                        {"probe", reinterpret_cast<std::uintptr_t>(&token_)},
                        {"token", token_},
                        {"options", options}};
  auto message = ask(opening, "opened", from_seconds(timeout_s_) + kAnswerTime, keep_going);
  if (!message) return tl::unexpected(message.error());
  opened_ = message->body["opened"];
  auto& descriptors = message->descriptors;
  if (descriptors.size() != 4 || !cannot_shrink(descriptors[0]) || !cannot_shrink(descriptors[1])) {
    return netfold::fail(ErrorCode::kSystem, fmt::format("{} is no agent of Netfold", agent_));
  }
  auto mapping = Mapping::of(descriptors[0], 0, sizeof(Channel), true);
  if (!mapping) return tl::unexpected(mapping.error());
  channel_memory_.emplace(std::move(*mapping));
  channel_ = reinterpret_cast<Channel*>(channel_memory_->data());
  log_ = std::move(descriptors[1]);
  request_bell_.emplace(descriptors[2].release());
  answer_bell_.emplace(descriptors[3].release());
  requests_.emplace(channel_->requests);
  answers_.emplace(channel_->answers);
  return {};
}

Result<void> AgentClient::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  auto connected =
      ask(to_json(Connecting{addresses, order_}), "connected", from_seconds(timeout_s_) + kAnswerTime, keep_going);
  if (!connected) return tl::unexpected(connected.error());
  return {};
}

// The agent's own errors are handed on; what else goes wrong is the agent's fault.
Result<Message> AgentClient::ask(const json& question, const char* answer, Nanoseconds patience,
                                 const std::function<bool()>& keep_going) const {
  const std::lock_guard lock(asking_);
  auto message = [&]() -> Result<Message> {
    if (auto sent = socket_.send(question); !sent) return tl::unexpected(sent.error());
    return socket_.await(now() + patience, keep_going);
  }();
  if (!message) {
    return netfold::fail(message.error().code,
                         fmt::format("the agent at {} (process {}), which folds for rank {}, does not answer: {}",
                                     agent_, agent_pid_, rank_, message.error().message));
  }
  if (message->body.contains("error")) return tl::unexpected(error_of(message->body["error"]));
  if (message->body.contains(answer)) return message;
  return netfold::fail(ErrorCode::kSystem, fmt::format("{} is no agent of Netfold", agent_));
}

Result<AgentClient::Ticket> AgentClient::hand_over(const AllReduce& request, const CollectiveOptions& how,
                                                   bool is_awaited) {
  if (const auto valid = engine::check(request); !valid) return tl::unexpected(valid.error());
  const auto checked = engine::check(Request::of(1, request, how), world_, rank_);
  if (!checked) return tl::unexpected(checked.error());
  const std::size_t out_bytes =
      layout_of(how.collective, request.count, world_, rank_).out.count * checked->element_bytes();
  const std::lock_guard lock(mutex_);
  const Ticket ticket = completions_.issue(is_awaited);
  const Nanoseconds deadline = now() + from_seconds(timeout_s_);
  while (!failure_ && !is_closed_) {
    if (requests_->push(Request::of(ticket, request, how))) {
      if (requests_->reader_sleeps()) request_bell_->wake();
      outstanding_[ticket] = {static_cast<std::byte*>(request.out), out_bytes};
      submitted_at_ = now();
      return ticket;
    }
    if (now() > deadline || socket_.has_ended()) break;  // whoever waits will find out what is wrong
    timespec pause{0, kFullPeriod};
    nanosleep(&pause, nullptr);
  }
  const Error full{ErrorCode::kTimeout, fmt::format("the agent at {} takes no more requests", agent_), kNoRank};
  completions_.add({ticket}, failure_ ? *failure_ : is_closed_ ? closed_error() : full);
  return ticket;
}

template <class Take>
std::optional<Completion> AgentClient::drive(Take take, Nanoseconds timeout) {
  const Nanoseconds deadline = now() + timeout;
  for (;;) {
    if (auto taken = take(0)) return taken;
    const Nanoseconds left = deadline - now();
    if (left <= 0) return std::nullopt;
    std::unique_lock lock(driving_, std::try_to_lock);
    if (!lock) {  // somebody else drives
      if (auto taken = take(std::min<Nanoseconds>(left, kMillisecond))) return taken;
      continue;
    }
    if (drain()) continue;
    {
      const std::lock_guard state(mutex_);
      if (failure_ || is_closed_) {
        lock.unlock();
        break;
      }
    }
    sleep(deadline);
  }
  return take(deadline - now());
}

std::optional<Completion> AgentClient::wait(Ticket ticket, Nanoseconds timeout) {
  return drive([&](Nanoseconds most) { return completions_.wait(ticket, most); }, timeout);
}

std::optional<Completion> AgentClient::next_completion(Nanoseconds timeout) {
  return drive([&](Nanoseconds most) { return completions_.next(most); }, timeout);
}

// True if there was an answer.
bool AgentClient::take_answers() {
  std::vector<Ticket> done;
  while (const auto answer = answers_->pop()) done.push_back(answer->ticket);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(done, [&](Ticket ticket) { return outstanding_.erase(ticket) == 0; });
  }
  completions_.add(done, std::nullopt);
  return !done.empty();
}

// True if anything has come. What the agent did before it failed or died still counts.
bool AgentClient::drain() {
  if (take_answers()) return true;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || is_closed_) return false;
  }
  const auto error = verdict();
  if (!error) return false;
  take_answers();
  fail(*error);
  return true;
}

std::optional<Error> AgentClient::verdict() const {
  if (auto error = channel_->failure.get()) return error;
  if (answers_->is_broken()) {
    return Error{ErrorCode::kSystem, fmt::format("the agent at {} answers nonsense", agent_), rank_};
  }
  const auto agent = fmt::format("the agent at {} (process {}), which folds for rank {},", agent_, agent_pid_, rank_);
  if (socket_.has_ended()) {
    if (auto error = channel_->failure.get()) return error;
    return Error{ErrorCode::kPeerFailed, fmt::format("{} has ended: see what it said, and start it again", agent),
                 rank_};
  }
  const std::lock_guard lock(mutex_);
  const Nanoseconds heard_at = std::max(channel_->alive_at.load(std::memory_order_relaxed), submitted_at_);
  const Nanoseconds patience = std::max(from_seconds(timeout_s_), kLookPeriod);
  if (outstanding_.empty() || now() - heard_at <= patience) return std::nullopt;
  return Error{ErrorCode::kTimeout, fmt::format("{} has given no sign of life for {:g} s", agent, timeout_s_), rank_};
}

void AgentClient::sleep(Nanoseconds deadline) {
  if (!answers_->may_sleep()) return;
  std::array<pollfd, 3> descriptors{{{answer_bell_->descriptor(), POLLIN, 0},
                                     {wakeup_.descriptor(), POLLIN, 0},
                                     {socket_.descriptor(), POLLRDHUP, 0}}};
  const Nanoseconds look = std::min(kLookPeriod, from_seconds(timeout_s_ / 4));
  wait_for(descriptors, std::min(deadline, now() + look));
  if (descriptors[0].revents != 0) answer_bell_->clear();
  if (descriptors[1].revents != 0) wakeup_.clear();
}

// An agent that is only slow learns that it must not write any more before we put back what it wrote.
void AgentClient::fail(const Error& error) {
  channel_->worker_gave_up.store(1, std::memory_order_seq_cst);
  std::map<Ticket, Extent> unfinished;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    unfinished.swap(outstanding_);
  }
  if (const auto undone = undo(log_, unfinished); !undone) {
    spdlog::error("tensors are left half folded: {}", undone.error().message);
  }
  std::vector<Ticket> tickets;
  for (const auto& [ticket, extent] : unfinished) tickets.push_back(ticket);
  completions_.add(tickets, error);
}

void AgentClient::close(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    is_closed_ = true;
  }
  wakeup_.wake();
  const std::lock_guard driving(driving_);
  if (channel_ != nullptr) {
    const Nanoseconds patience = channel_->worker_gave_up.load() != 0 ? kAnswerTime : kClosingTime;
    const auto closed = ask({{"close", error ? error->message : ""}}, "closed", patience, {});
    if (closed) counters_ = closed->body["closed"];
    take_answers();
    fail(closed ? closed_error() : verdict().value_or(closed_error()));
  }
  completions_.close();
}

json AgentClient::counters() const {
  bool is_open;
  {
    const std::lock_guard lock(mutex_);
    is_open = !failure_ && !is_closed_;
  }
  if (is_open) {
    auto answer = ask({{"count", true}}, "counters", kAnswerTime, {});
    const std::lock_guard lock(asking_);
    if (answer) counters_ = answer->body["counters"];
    return counters_;
  }
  const std::lock_guard lock(asking_);
  return counters_;
}

}  // namespace netfold::engine

#include "group/via_agent/agent.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>

#include "base/log.h"
#include "base/thread.h"
#include "group/via_agent/messages.h"

namespace netfold::group {
namespace {

constexpr int kAcceptsMax = 64;             // before it looks which sessions are over
constexpr std::size_t kSessionsMax = 1024;  // each has threads and descriptors

}  // namespace

Result<std::unique_ptr<Agent>> Agent::start(const std::string& address) {
  auto listener = link::LocalListener::at(address, SOCK_SEQPACKET);
  if (!listener) return tl::unexpected(listener.error());
  return std::unique_ptr<Agent>(new Agent(std::move(*listener)));
}

Agent::Agent(link::LocalListener listener)
    : listener_(std::move(listener)),
      name_(fmt::format("the agent at {} (process {})", listener_.address(), getpid())),
      thread_([this] { run(); }) {}

Agent::~Agent() {
  stop("was stopped");
}

void Agent::stop(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wakeup_.wake();
  if (thread_.joinable()) thread_.join();
  for (auto& session : sessions_) session->stop(why);
  sessions_.clear();
}

// Another user of this machine must not use up our threads and descriptors.
Result<void> Agent::admit(const LocalSocket& socket) const {
  const auto peer = socket.peer();
  if (!peer) return tl::unexpected(peer.error());
  if (peer->uid != geteuid()) {
    return fail(ErrorCode::kRefused,
                fmt::format("{} serves user {}, not user {}: start one as that user, with another --socket", name_,
                            geteuid(), peer->uid));
  }
  if (sessions_.size() < kSessionsMax) return {};
  return fail(ErrorCode::kRefused, fmt::format("{} serves {} workers, as many as it takes", name_, sessions_.size()));
}

void Agent::run() {
  set_up_thread("nf-agent-accept", kAnyCore);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
    }
    std::erase_if(sessions_, [](const auto& session) { return session->is_over(); });
    for (int accepted = 0; accepted < kAcceptsMax; ++accepted) {
      auto descriptor = listener_.accept();
      if (!descriptor) break;
      LocalSocket socket(std::move(*descriptor));
      if (const auto may_enter = admit(socket); !may_enter) {
        log::warn("a worker was turned away: {}", may_enter.error().message);
        static_cast<void>(socket.send({{"error", to_json(may_enter.error())}}));
        continue;
      }
      sessions_.push_back(std::make_unique<ServedWorker>(std::move(socket), name_, [this] { wakeup_.wake(); }));
    }
    std::array<pollfd, 2> descriptors{{{listener_.descriptor(), POLLIN, 0}, {wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, kNever);
    wakeup_.clear();
  }
}

}  // namespace netfold::group

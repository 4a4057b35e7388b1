#include "group/via_agent/agent.h"

#include <fmt/format.h>

#include <array>

#include "base/thread.h"

namespace netfold::group {

Result<std::unique_ptr<Agent>> Agent::start(const std::string& address) {
  auto listener = LocalListener::at(address);
  if (!listener) return tl::unexpected(listener.error());
  return std::unique_ptr<Agent>(new Agent(std::move(*listener)));
}

Agent::Agent(LocalListener listener)
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

void Agent::run() {
  set_up_thread("nf-agent-accept", kAnyCore);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
    }
    while (auto socket = listener_.accept()) {
      sessions_.push_back(std::make_unique<ServedWorker>(std::move(*socket), name_, [this] { wakeup_.wake(); }));
    }
    std::erase_if(sessions_, [](const auto& session) { return session->is_over(); });
    std::array<pollfd, 2> descriptors{{{listener_.descriptor(), POLLIN, 0}, {wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, kNever);
    wakeup_.clear();
  }
}

}  // namespace netfold::group

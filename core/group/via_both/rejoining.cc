#include "group/via_both/rejoining.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"

namespace netfold::group {
namespace {

// An attempt lasts long enough for all ranks to come, whose attempts begin at different times, and short enough to turn
// to other lost switches.
constexpr double kConnectSeconds = 1;
constexpr Nanoseconds kAttempt = 4 * kSecond;
constexpr auto kBetweenAttempts = std::chrono::milliseconds(250);

}  // namespace

Rejoining::Rejoining(std::vector<SwitchGroupOptions> at_switches) : at_switches_(std::move(at_switches)) {}

Rejoining::~Rejoining() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Rejoining::ask(SwitchLife life) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(wanted_, [&](const SwitchLife& each) { return each.at == life.at; });
    wanted_.push_back(life);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

std::optional<SwitchReturns::Joined> Rejoining::take() {
  const std::lock_guard lock(mutex_);
  if (joined_.empty()) return std::nullopt;
  Joined first = std::move(joined_.front());
  joined_.pop_front();
  return first;
}

bool Rejoining::is_wanted(SwitchLife life) const {
  const std::lock_guard lock(mutex_);
  return !is_ending_ && std::ranges::find(wanted_, life) != wanted_.end();
}

void Rejoining::run() {
  set_up_thread("nf-rejoin", kAnyCore);
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    if (wanted_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const SwitchLife life = wanted_.front();
    lock.unlock();
    SwitchGroupOptions options = at_switches_[life.at];
    options.job += fmt::format("~{}", life.life);  // something of the job before it may be left at the switch
    options.connect_timeout_s = kConnectSeconds;
    const Nanoseconds until = now() + kAttempt;
    options.keep_going = [&] { return now() < until && is_wanted(life); };
    auto session = join_session(std::move(options));
    lock.lock();
    const auto found = std::ranges::find(wanted_, life);
    if (found == wanted_.end()) continue;  // for another life meanwhile
    wanted_.erase(found);
    if (session) {
      joined_.push_back({life, std::move(*session)});
      continue;
    }
    wanted_.push_back(life);
    changed_.wait_for(lock, kBetweenAttempts, [this] { return is_ending_; });
  }
}

}  // namespace netfold::group

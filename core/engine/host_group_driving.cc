// Who drives a HostGroup, a thread of its own or those that wait for a collective; and how one waits when nothing
// moves.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>

#include "base/relax.h"
#include "engine/collective/spread.h"
#include "engine/host_group.h"

namespace netfold::engine {
namespace {

constexpr std::string_view kDirect = "direct";  // has an executor of its own on one machine
// Before sleeping, a rank that waits gives its core away again and again: to a rank that has work, if one is there, and
// it costs next to nothing if none is. To spin instead costs much wherever the awaited rank happens to share the core;
// only who is alone on one spins first, about as long as a small all-reduce takes. A progress thread sleeps soon, and
// so leaves the core to computation; whoever waits in its own thread has nothing else to do. A network is so much
// slower than a wake-up that looking out for it is in vain.
constexpr int kThreadYields = 100;
constexpr int kCallerYields = 1000;
// A yield that returns at once gave the core to nobody: either nobody else wants it, or the kernel gives processes of
// different sessions their turns by a clock of its own (autogroups). Then only sleep lets the others run; where every
// rank of this machine has a core there is no hurry, and to be woken takes longer than most waits.
constexpr Nanoseconds kSwitchTime = 600;
constexpr int kVainYields = 30, kVainYieldsWithCores = 500;
constexpr int kSpins = 300;                            // some microseconds
constexpr Nanoseconds kSettleTime = 2 * kMillisecond;  // between two moves to another core

}  // namespace

// While it lasts, a caller drives or is about to. The last to go wakes the thread if anything is left to do.
class HostGroup::Turn {
 public:
  explicit Turn(HostGroup& group) : group_(group) { ++group_.callers_; }
  ~Turn() {
    const bool is_last = --group_.callers_ == 0;
    group_.callers_.notify_all();
    const bool is_left = group_.has_work_ || group_.has_submissions_;
    if (is_last && is_left && !group_.options_.inline_progress) group_.thread_wakeup_.wake();
  }
  Turn(const Turn&) = delete;

 private:
  HostGroup& group_;
};

// With so many other ranks on this machine.
void HostGroup::learn_to_wait(int local) {
  const int cores = std::max(1, static_cast<int>(allowed_cores().size()));
  const bool has_cores = local + 1 <= cores;
  ranks_a_core_ = (local + cores) / cores;
  if (local > 0) {
    caller_yields_ = kCallerYields;
    thread_yields_ = has_cores ? kCallerYields : kThreadYields;
  }
  vain_yields_ = has_cores ? kVainYieldsWithCores : kVainYields;
  is_alone_ = has_cores;
}

// Collectives come one at a time, as a rule, and the ranks of a machine soon: then neither queue nor clock is needed.
Result<void> HostGroup::run(const AllReduce& request, const CollectiveOptions& options) {
  if (auto valid = validate(request, options); !valid) return valid;
  std::optional<Ticket> begun;
  {
    const Turn turn(*this);
    const std::unique_lock driving(driving_, std::try_to_lock);
    if (driving && is_at_rest() && is_direct(options)) {
      begun = completions_.issue();
      if (run_directly(*begun, request, options)) return {};
    }
  }
  return begun ? finish(*begun) : Engine::run(request, options);
}

// False: it is still on its way, or has failed.
bool HostGroup::run_directly(Ticket ticket, const AllReduce& request, const CollectiveOptions& options) {
  Terms terms = terms_of(request, options);
  terms.number = ++all_reduces_;
  direct_->announce(terms);
  direct_->submit(ticket, request, {request.format, options.bfp}, terms);
  const int spins = is_alone_ ? kSpins : 0;
  for (int i = 0; i <= spins && !has_submissions_; ++i) {
    const auto moved = direct_->pump();
    if (!moved) {
      completions_.reserve(ticket);
      fail(moved.error(), true);
      return false;
    }
    if (direct_->is_idle()) {
      direct_->take_finished();
      return true;
    }
    if (*moved) i = 0;
    relax();
  }
  completions_.reserve(ticket);
  has_work_ = has_moved_ = true;
  return false;
}

bool HostGroup::is_direct(const CollectiveOptions& options) const {
  return direct_ && options.algorithm == kDirect && options.collective == schedule::Collective::kAllReduce;
}

// Of whoever drives: nothing is on its way, and nobody awaits news of us.
bool HostGroup::is_at_rest() const {
  return executor_ && !has_failed_ && !is_closing_ && !has_submissions_ && announced_.empty() && is_idle();
}

template <class Take>
std::optional<Completion> HostGroup::drive(Take take, Nanoseconds timeout) {
  const Nanoseconds deadline = now() + timeout;
  std::optional<Turn> turn(std::in_place, *this);
  for (;;) {
    if (auto taken = take(0)) return taken;
    if (is_closing_) return turn.reset(), take(deadline - now());
    std::unique_lock lock(driving_, std::defer_lock);
    if (callers_ > 1) {
      static_cast<void>(lock.try_lock());
    } else {
      lock.lock();  // from the thread, that keeps it for a step only
    }
    if (!lock) {  // another caller drives
      const Nanoseconds left = deadline - now();
      if (left <= 0) return std::nullopt;
      if (auto taken = take(std::min(left, kMillisecond))) return taken;
      continue;
    }
    if (!executor_ || has_failed_) {  // nobody can drive
      lock.unlock();
      return turn.reset(), take(deadline - now());
    }
    const bool has_moved = step();
    has_work_ = !is_idle() || mesh_->has_unsent();
    auto taken = take(0);
    if (taken || time_ >= deadline) return taken;
    if (has_moved) continue;
    if (auto sleep = look_around(deadline)) {
      wait_for(sleep->descriptors, sleep->until);
      caller_wakeup_.clear();
      wake_up(*sleep);
    }
  }
}

std::optional<Completion> HostGroup::wait(Ticket ticket, Nanoseconds timeout) {
  auto taken = drive([&](Nanoseconds most) { return completions_.wait(ticket, most); }, timeout);
  if (taken && !taken->error) send_out();
  return taken;
}

std::optional<Completion> HostGroup::next_completion(Nanoseconds timeout) {
  if (!options_.inline_progress) return completions_.next(timeout);
  auto taken = drive([&](Nanoseconds most) { return completions_.next(most); }, timeout);
  if (taken && !taken->error) send_out();
  return taken;
}

// With nobody to drive between two calls, what links still hold for others must go before the caller does.
void HostGroup::send_out() {
  if (!options_.inline_progress) return;
  const std::unique_lock lock(driving_, std::try_to_lock);
  if (!lock || !mesh_ || !executor_) return;
  const Nanoseconds deadline = now() + from_seconds(options_.timeout_s);
  while (!has_failed_ && !is_closing_ && mesh_->has_unsent() && now() < deadline) {
    if (!step()) mesh_->sleep(caller_wakeup_.descriptor(), now() + kLookPeriod);
  }
}

void HostGroup::run_thread() {
  set_up_thread(fmt::format("nf-rank-{}", options_.rank), options_.core);
  for (std::optional<Sleep> slept; !is_closing_;) {
    stand_aside();
    if (is_closing_) break;  // it may have taken the call that woke us
    std::optional<Sleep> sleep;
    {
      const std::lock_guard driving(driving_);
      if (slept) wake_up(*slept);
      if (!step()) sleep = look_around(kNever);
    }
    if (sleep) {
      wait_for(sleep->descriptors, sleep->until);
      thread_wakeup_.clear();
    }
    slept = std::move(sleep);
  }
  cpu_s_ = thread_cpu_s();
}

// While callers drive. They wake us if they leave something to do; a life line's news is first of all theirs.
void HostGroup::stand_aside() {
  for (bool has_news = false; !is_closing_;) {
    const int callers = callers_;
    if (callers == 0) return;
    if (has_news) {
      callers_.wait(callers);
      continue;
    }
    std::array<pollfd, 2> descriptors{{{thread_wakeup_.descriptor(), POLLIN, 0}, {mesh_->life_lines(), POLLIN, 0}}};
    wait_for(descriptors, kNever);
    thread_wakeup_.clear();
    has_news = descriptors[1].revents != 0;
  }
}

// Looks for a while whether something comes; if nothing does, it is time to sleep.
std::optional<HostGroup::Sleep> HostGroup::look_around(Nanoseconds until) {
  const Wakeup& wakeup = is_thread() ? thread_wakeup_ : caller_wakeup_;
  if (has_failed_) return Sleep{until, {{wakeup.descriptor(), POLLIN, 0}}, false};  // only close() is of interest
  const bool is_busy = !is_idle();
  if (is_busy) {
    spread_out();
    const int yields = is_thread() ? thread_yields_ : caller_yields_;
    for (int i = 0, in_vain = 0; i < yields && in_vain < vain_yields_; ++i) {
      const Nanoseconds before = now();
      sched_yield();
      if (now() - before < kSwitchTime) ++in_vain;
      if (look_again()) return std::nullopt;
    }
    if (!std::ranges::all_of(runners_, [](Runner* each) { return each->arm(); })) return std::nullopt;
    const Nanoseconds soon = std::min(patience(), kLookPeriod * 5);
    until = std::min(until, std::max(last_progress_ + patience(), now() + soon));
  }
  if (has_submissions_) return std::nullopt;
  return Sleep{until, mesh_->news(wakeup.descriptor(), is_busy), is_busy && mesh_->has_bell()};
}

// Ranks with cores of their own wait for each other less than half as long as ranks that take turns on one.
void HostGroup::spread_out() {
  if (!direct_) return;
  const std::span<const int> cores = direct_->say_core(sched_getcpu());
  const auto own = cores.begin() + options_.rank;
  is_alone_ = std::count(cores.begin(), cores.end(), *own) == 1;
  if (std::count(cores.begin(), own, *own) < ranks_a_core_ || time_ < next_move_) return;
  next_move_ = time_ + kSettleTime;
  const int core = core_to_leave_for(cores, options_.rank, allowed_cores());
  if (core == kUnknownCore) return;
  move_to_core(core);
  direct_->say_core(core);
}

void HostGroup::wake_up(const Sleep& slept) {
  if (slept.hears_bell && slept.descriptors.back().revents != 0) mesh_->clear_bell();
  next_look_ = 0;
}

bool HostGroup::look_again() {
  return has_submissions_ || pump() || has_failed_ || (callers_ > 0 && is_thread());
}

}  // namespace netfold::engine

// How a driver waits when nothing moves, and on which core.
#include <sched.h>

#include <algorithm>

#include "group/driver.h"
#include "group/rank_spread.h"

namespace netfold::group {
namespace {

// Before sleeping, a rank that waits yields its core again and again: to a rank that has work, if there is one, and at
// next to no cost if there is none. Spinning instead costs much wherever the awaited rank happens to share the core;
// only a rank that is alone on its core spins first (driver.cc). A progress thread sleeps soon, and so leaves the core
// to computation; a thread that waits for its own request has nothing else to do.
constexpr int kThreadYields = 100;
constexpr int kCallerYields = 1000;
// A yield that returns at once gave the core to no thread: either none wants it, or the kernel gives processes of
// different sessions their turns by a clock of its own (autogroups). Then the others run only while this
// thread sleeps. Where every rank of this machine has a core, it yields longer first: a wake-up takes longer than most
// waits.
constexpr Nanoseconds kSwitchTime = 600;
constexpr int kVainYields = 30, kVainYieldsWithCores = 500;
constexpr Nanoseconds kNotePeriod = 10 * kMillisecond;
// At the word that a device writes when a tensor is here: nothing wakes us for it. A copy of a megabyte takes as long.
constexpr Nanoseconds kDevicePeriod = 50 * kMicrosecond;
constexpr Nanoseconds kSettleTime = 2 * kMillisecond;  // between two moves to another core

}  // namespace

WaitPolicy policy_among(int local) {
  const int cores = std::max(1, static_cast<int>(allowed_cores().size()));
  const bool has_cores = local + 1 <= cores;
  WaitPolicy policy;
  policy.ranks_per_core = (local + cores) / cores;
  if (local > 0) {
    policy.caller_yields = kCallerYields;
    policy.thread_yields = has_cores ? kCallerYields : kThreadYields;
  }
  policy.vain_yields = has_cores ? kVainYieldsWithCores : kVainYields;
  policy.is_alone = has_cores;
  return policy;
}

// Looks for a while whether something comes; if nothing does, it is time to sleep.
std::optional<Driver::Sleep> Driver::look_around(Nanoseconds until) {
  Sleep sleep{until, {{own_wakeup().descriptor(), POLLIN, 0}}};
  if (has_failed_) return sleep;  // only close() is of interest
  if (!session_->is_idle()) {
    spread_out();
    const int yields = awaits_device_ ? 0 : is_thread() ? policy_.thread_yields : policy_.caller_yields;
    for (int i = 0, in_vain = 0; i < yields && in_vain < policy_.vain_yields; ++i) {
      const Nanoseconds before = now();
      sched_yield();
      const Nanoseconds after = now();
      if (after - before < kSwitchTime) ++in_vain;
      // Where many ranks share a core, so many yields take long, and a death must not wait for them.
      const bool looks = after - time_ >= kLookPeriod;
      const bool has_news =
          has_submissions_ || (looks ? step() : move()) || has_failed_ || (callers_ > 0 && is_thread());
      if (has_news) return std::nullopt;
    }
  }
  // Also where it is idle. Else data of a faster rank, which are for the next request, wake us again and again.
  if (!session_->arm() || has_submissions_) return std::nullopt;
  if (time_ >= next_note_) {  // for counters(), which cannot always wait for the lock
    note_counters();
    next_note_ = time_ + kNotePeriod;
  }
  sleep.until = std::min(until, session_->deadline());
  if (awaits_device_) sleep.until = std::min(sleep.until, now() + kDevicePeriod);
  session_->add_polls(sleep.polls);
  return sleep;
}

void Driver::go_to_sleep(Sleep& sleep, const Wakeup& wakeup) {
  wait_for(sleep.polls, sleep.until);
  if (sleep.polls[0].revents != 0) wakeup.clear();  // a system call only where there is something
  session_->on_wake(std::span(sleep.polls).subspan(1));
}

// Ranks with cores of their own wait for each other less than half as long as ranks that take turns on one.
void Driver::spread_out() {
  const int rank = options_.rank;
  const std::span<const int> cores = session_->share_core(sched_getcpu());
  if (cores.empty()) return;
  const auto own = cores.begin() + rank;
  policy_.is_alone = std::count(cores.begin(), cores.end(), *own) == 1;
  if (std::count(cores.begin(), own, *own) < policy_.ranks_per_core || time_ < next_move_) return;
  next_move_ = time_ + kSettleTime;
  const int core = core_to_leave_for(cores, rank, allowed_cores());
  if (core == kUnknownCore) return;
  move_to_core(core);
  session_->share_core(core);
}

}  // namespace netfold::group

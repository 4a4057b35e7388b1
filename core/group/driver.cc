#include "group/driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/relax.h"

namespace netfold::group {
namespace {

constexpr int kSpins = 300;                      // some microseconds: as long as a small all-reduce takes
constexpr Nanoseconds kPeriod = 1000 * kSecond;  // of waiting again; nothing depends on it
// How often counters() asks for the lock before it tells what was noted last. The thread lets go of it after its step;
// a caller may sleep for long with it.
constexpr int kTriesAfterThread = 2000, kTriesAmongCallers = 20;
constexpr auto kTryPeriod = std::chrono::microseconds(100);

}  // namespace

// While it lasts, a caller drives or is about to. The last to go wakes the thread if anything is left to do, or falls
// due before the thread would wake.
class Driver::Turn {
 public:
  explicit Turn(const Driver& driver) : driver_(driver) { ++driver_.callers_; }
  ~Turn() {
    const bool is_last = --driver_.callers_ == 0;
    driver_.callers_.notify_all();
    const bool is_left =
        driver_.has_work_ || driver_.may_submit() || driver_.next_deadline_ < driver_.thread_sleeps_until_;
    if (is_last && is_left && driver_.options_.has_thread) driver_.thread_wakeup_.wake();
  }
  Turn(const Turn&) = delete;

 private:
  const Driver& driver_;
};

Driver::Driver(DriverOptions options)
    : options_(std::move(options)),
      counters_(std::make_unique<nlohmann::json>()),
      completions_(options_.on_completion) {}

Driver::~Driver() = default;

void Driver::start(std::unique_ptr<Session> session, WaitPolicy policy) {
  const std::lock_guard driving(driving_);
  if (is_closing_) return;
  session_ = std::move(session);
  policy_ = policy;
  life_line_ = session_->life_line();
  time_ = now();
  next_deadline_ = session_->deadline();
  const std::lock_guard lock(mutex_);
  *counters_ = session_->counters();
  (*counters_)["cpu_s"] = 0.0;
  preparing_ = session_.get();
  is_started_ = true;
  if (options_.has_thread) thread_ = std::thread([this] { run_thread(); });
}

// --- What callers do ---

Result<Driver::Ticket> Driver::hand_over(const CollectiveRequest& request, bool is_awaited) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    if (!is_started_ && !is_closing_) {
      return fail(ErrorCode::kInvalidArgument, "this group is not connected: call connect first");
    }
    std::unique_ptr<Prepared> prepared;
    if (preparing_ != nullptr) {
      auto valid = preparing_->prepare(request);
      if (!valid) return tl::unexpected(valid.error());
      prepared = std::move(*valid);
    }
    ticket = completions_.issue(is_awaited, request.words);
    if (failure_ || is_closing_) {
      completions_.add({ticket}, failure_ ? *failure_ : Error{ErrorCode::kInvalidArgument, options_.closed});
      return ticket;
    }
    submitted_.push_back({ticket, request, std::move(prepared)});
    has_submissions_ = true;
    if (callers_ > 0) caller_wakeup_.wake();
    if (!is_awaited && options_.has_thread) thread_wakeup_.wake();
  }
  if (options_.submits_at_once) submit_now();
  return ticket;
}

// If somebody drives, they take it: they look at has_submissions_ after they have let go of the lock.
void Driver::submit_now() {
  while (has_submissions_) {
    const std::unique_lock driving(driving_, std::try_to_lock);
    if (!driving || !session_ || has_failed_) return;
    take_submissions();
    move();
  }
}

// Collectives come one at a time, as a rule, and the ranks of a machine soon: then neither queue nor clock is needed.
Result<void> Driver::run(const CollectiveRequest& request) {
  std::optional<Ticket> begun;
  {
    const Turn turn(*this);
    const std::unique_lock driving(driving_, std::try_to_lock);
    if (driving && is_at_rest() && session_->is_quick(request)) {
      std::unique_ptr<Prepared> prepared;
      {
        const std::lock_guard lock(mutex_);
        auto valid = session_->prepare(request);
        if (!valid) return tl::unexpected(valid.error());
        prepared = std::move(*valid);
      }
      begun = completions_.issue();
      if (run_quickly(*begun, request, std::move(prepared))) return {};
    }
  }
  if (begun) return finish(*begun);
  const auto ticket = hand_over(request, true);
  return ticket ? finish(*ticket) : tl::unexpected(ticket.error());
}

// False: it is still on its way, or has failed.
bool Driver::run_quickly(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) {
  const StandardArithmetic arithmetic;
  Submission submission{ticket, request, std::move(prepared)};
  const auto begun = hand_to_session(submission);
  if (!begun) {
    completions_.reserve(ticket);
    fail_with(begun.error(), {ticket});
    return false;
  }
  const int spins = policy_.is_alone ? kSpins : 0;
  for (int i = 0; i <= spins && !has_submissions_; ++i) {
    const auto moved = guarded([&] { return session_->move(); });
    if (!moved) {
      completions_.reserve(ticket);
      fail_with(moved.error());
      return false;
    }
    if (session_->is_idle()) {
      std::vector<Ticket> finished = session_->take_finished();  // also what a move() before ours has finished
      std::erase(finished, ticket);
      completions_.add(finished, std::nullopt);
      return true;
    }
    if (*moved) i = 0;
    relax();
  }
  completions_.reserve(ticket);
  has_work_ = true;
  return false;
}

bool Driver::is_work_left() const {
  return session_ && !has_failed_ && (!session_->is_idle() || session_->has_unsent() || awaits_device_);
}

// Nothing is on its way: the next request need not queue.
bool Driver::is_at_rest() const {
  return session_ && !has_failed_ && !is_closing_ && !may_submit() && session_->is_idle();
}

Result<void> Driver::finish(Ticket ticket) {
  for (;;) {
    const auto completion = wait(ticket, kPeriod);
    if (completion && completion->error) return tl::unexpected(*completion->error);
    if (completion) return {};
  }
}

std::optional<Completion> Driver::wait(Ticket ticket, Nanoseconds timeout) {
  auto taken = drive([&](Nanoseconds most) { return completions_.wait(ticket, most); }, timeout);
  if (taken && !taken->error) send_out();
  return taken;
}

std::optional<Completion> Driver::next_completion(Nanoseconds timeout) {
  if (options_.has_thread) return completions_.next(timeout);
  auto taken = drive([&](Nanoseconds most) { return completions_.next(most); }, timeout);
  if (taken && !taken->error) send_out();
  return taken;
}

void Driver::close(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closing_) parting_error_ = std::move(error);
    is_closing_ = true;
  }
  thread_wakeup_.wake();
  caller_wakeup_.wake();
  {
    const std::lock_guard joining(joining_);
    if (thread_.joinable()) thread_.join();
  }
  const std::lock_guard driving(driving_);
  if (session_) {
    before_leave(*session_);
    leave();
    fail_with({ErrorCode::kInvalidArgument, options_.closed});
    note_counters();
    after_leave(*session_);
    const std::lock_guard lock(mutex_);
    preparing_ = nullptr;
    session_.reset();
  }
  completions_.close();
}

nlohmann::json Driver::counters() const {
  {
    const Turn turn(*this);
    std::unique_lock driving(driving_, std::try_to_lock);
    for (int tries = 1; !driving && tries < (callers_ > 1 ? kTriesAmongCallers : kTriesAfterThread); ++tries) {
      std::this_thread::sleep_for(kTryPeriod);
      static_cast<void>(driving.try_lock());
    }
    if (driving && session_) note_counters();
    has_work_ = !driving || is_work_left();
  }
  const std::lock_guard lock(mutex_);
  return *counters_;
}

std::optional<Error> Driver::error() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// --- What the holder of driving_ does ---

// A system that gives no more memory fails the group, and not the process: what was overwritten is put back, and the
// other ranks are told.
template <class Call>
Result<bool> Driver::guarded(Call call) const {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return netfold::fail(ErrorCode::kSystem,
                         fmt::format("rank {} got no more memory from its system for a collective: have fewer or "
                                     "smaller tensors in flight, or raise the limit (ulimit -v, cgroup)",
                                     options_.rank),
                         options_.rank);
  }
}

Result<bool> Driver::hand_to_session(Submission& submission) {
  return guarded([&]() -> Result<bool> {
    session_->submit(submission.ticket, submission.request, std::move(submission.prepared));
    return true;
  });
}

// True if anything moved.
bool Driver::step() {
  const StandardArithmetic arithmetic;
  if (may_submit()) take_submissions();
  if (has_failed_) return false;
  if (wanted_timeout_ != 0) session_->set_timeout(wanted_timeout_.exchange(0));
  time_ = now();
  const auto moved = guarded([&] { return session_->pump(time_); });
  if (!moved) {
    fail_with(moved.error());
    return false;
  }
  next_deadline_ = session_->deadline();
  take_finished();
  return *moved;
}

void Driver::set_timeout(Nanoseconds timeout) {
  wanted_timeout_ = timeout;
  thread_wakeup_.wake();
  caller_wakeup_.wake();
}

bool Driver::move() {
  const StandardArithmetic arithmetic;
  const auto moved = guarded([&] { return session_->move(); });
  if (!moved) fail_with(moved.error());
  return moved && *moved;
}

// A tensor that its device still copies here holds up those after it: all ranks begin their collectives in one order.
void Driver::take_submissions() {
  std::deque<Submission> taken;
  {
    const std::lock_guard lock(mutex_);  // nothing is left once the group has failed
    while (!submitted_.empty() && submitted_.front().request.words.has_copied()) {
      taken.push_back(std::move(submitted_.front()));
      submitted_.pop_front();
    }
    has_submissions_ = false;
    awaits_device_ = !submitted_.empty();
  }
  for (auto next = taken.begin(); next != taken.end(); ++next) {
    const auto handed = hand_to_session(*next);
    if (handed) continue;
    std::vector<Ticket> refused;
    for (; next != taken.end(); ++next) refused.push_back(next->ticket);
    return fail_with(handed.error(), refused);
  }
}

void Driver::take_finished() {
  const auto finished = session_->take_finished();
  if (finished.empty()) return;
  if (is_thread()) cpu_s_ = thread_cpu_s();
  completions_.add(finished, std::nullopt);
}

// `refused`: tickets that the session may not have taken.
void Driver::fail_with(const Error& error, const std::vector<Ticket>& refused) {
  if (!has_failed_) {
    take_finished();  // what was done before the failure is done
    std::vector<Ticket> tickets = session_->abort(error, now());
    for (const Ticket ticket : refused) {
      if (std::find(tickets.begin(), tickets.end(), ticket) == tickets.end()) tickets.push_back(ticket);
    }
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = error;
    }
    has_failed_ = true;
    completions_.add(tickets, error);
  }
  std::vector<Ticket> unsent;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& submission : submitted_) unsent.push_back(submission.ticket);
    submitted_.clear();
    has_submissions_ = awaits_device_ = false;
  }
  completions_.add(unsent, error);
}

// Says goodbye and waits until the others have heard it; the session bounds how long that takes.
void Driver::leave() {
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    error = parting_error_;
  }
  while (!session_->leave(error, now())) {
    std::vector<pollfd> polls;
    session_->add_polls(polls);
    wait_for(polls, session_->deadline());
    session_->on_wake(polls);
  }
}

void Driver::note_counters() const {
  nlohmann::json counters = session_->counters();
  counters["cpu_s"] = cpu_s_;
  const std::lock_guard lock(mutex_);
  *counters_ = std::move(counters);
}

// --- Who drives ---

template <class Take>
std::optional<Completion> Driver::drive(Take take, Nanoseconds timeout) {
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
    if (!session_ || has_failed_) {  // nobody can drive
      lock.unlock();
      return turn.reset(), take(deadline - now());
    }
    const bool has_moved = step();
    has_work_ = is_work_left();
    auto taken = take(0);
    if (taken || time_ >= deadline) return taken;
    if (has_moved) continue;
    if (auto sleep = look_around(deadline)) go_to_sleep(*sleep, caller_wakeup_);
  }
}

// With nobody to drive between two calls, what links still hold for others must go before the caller does.
void Driver::send_out() {
  if (options_.submits_at_once) submit_now();
  if (options_.has_thread) return;
  const std::unique_lock lock(driving_, std::try_to_lock);
  if (!lock || !session_) return;
  const Nanoseconds deadline = now() + options_.timeout;
  while (!has_failed_ && !is_closing_ && session_->has_unsent() && now() < deadline) {
    if (step()) continue;
    Sleep sleep{now() + kLookPeriod, {{caller_wakeup_.descriptor(), POLLIN, 0}}};
    session_->add_polls(sleep.polls);
    go_to_sleep(sleep, caller_wakeup_);
  }
}

void Driver::run_thread() {
  set_up_thread(options_.thread_name, options_.core);
  for (std::optional<Sleep> slept; !is_closing_;) {
    stand_aside();
    if (is_closing_) break;  // it may have taken the call that woke us
    std::optional<Sleep> sleep;
    {
      const std::lock_guard driving(driving_);
      if (slept) session_->on_wake(std::span(slept->polls).subspan(1));
      if (!step()) sleep = look_around(kNever);
      if (sleep) thread_sleeps_until_ = sleep->until;
    }
    if (sleep) {
      wait_for(sleep->polls, sleep->until);
      thread_sleeps_until_ = 0;
      if (sleep->polls[0].revents != 0) thread_wakeup_.clear();
    }
    slept = std::move(sleep);
  }
  const std::lock_guard driving(driving_);
  cpu_s_ = thread_cpu_s();
}

// While callers drive. They wake us if they leave something to do. What comes over the life line while no caller sleeps
// for it, and what is due meanwhile, is first of all theirs.
void Driver::stand_aside() {
  for (bool has_news = false; !is_closing_;) {
    const int callers = callers_;
    if (callers == 0) return;
    if (has_news) {
      callers_.wait(callers);
      continue;
    }
    std::array<pollfd, 2> polls{{{thread_wakeup_.descriptor(), POLLIN, 0}, {life_line_, POLLIN, 0}}};
    thread_sleeps_until_ = kNever;  // first: a caller that changes the deadline from here on wakes us
    const Nanoseconds until = next_deadline_;
    thread_sleeps_until_ = until;
    wait_for(polls, until);
    thread_sleeps_until_ = 0;
    if (polls[0].revents != 0) thread_wakeup_.clear();
    has_news = polls[0].revents == 0;
  }
}

}  // namespace netfold::group

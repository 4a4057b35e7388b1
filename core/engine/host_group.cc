#include "engine/host_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/relax.h"
#include "engine/collective/spread.h"
#include "link/tcp/tcp_stream.h"

namespace netfold::engine {
namespace {

constexpr Nanoseconds kLookPeriod = 20 * kMillisecond;  // at the life lines, while busy
constexpr Nanoseconds kStallTime = 100 * kMillisecond;  // without progress: do ranks mean the same at all?
constexpr Nanoseconds kPatienceWithTheWaiting = 100 * kMillisecond;
constexpr Nanoseconds kCourtesy = 500 * kMillisecond;
constexpr Nanoseconds kGoodbyeTime = 2 * kSecond;  // for the last bytes to reach the kernel
constexpr std::string_view kDirect = "direct";     // has an executor of its own on one machine
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

Error closed_error() {
  return {ErrorCode::kInvalidArgument, "this group has been closed: open another", kNoRank};
}

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

Result<std::unique_ptr<HostGroup>> HostGroup::open(HostGroupOptions options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return netfold::fail(ErrorCode::kInvalidArgument, fmt::format("rank {} of a world of {}: ranks are 0 to world - 1",
                                                                  options.rank, options.world));
  }
  if (options.tcp_streams < 1 || options.tcp_streams > link::kTcpStreamsMax) {
    return netfold::fail(ErrorCode::kInvalidArgument,
                         fmt::format("{} TCP streams to a rank: 1 to {}", options.tcp_streams, link::kTcpStreamsMax));
  }
  const auto address = link::parse_address(options.listen);
  if (!address) return tl::unexpected(address.error());
  auto mesh = Mesh::listen(options.rank, options.world, *address, options.shm, jobs::Secret::from(options.secret));
  if (!mesh) return tl::unexpected(mesh.error());
  (*mesh)->set_tcp_streams(options.tcp_streams);
  return std::unique_ptr<HostGroup>(new HostGroup(std::move(options), std::move(*mesh)));
}

HostGroup::HostGroup(HostGroupOptions options, std::unique_ptr<Mesh> mesh)
    : options_(std::move(options)),
      mesh_(std::move(mesh)),
      address_(link::to_string(mesh_->address())),
      plans_(options_.world, options_.rank),
      completions_(options_.on_completion) {}

HostGroup::~HostGroup() {
  close();
}

Result<void> HostGroup::connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going) {
  const std::lock_guard driving(driving_);
  if (static_cast<int>(addresses.size()) != options_.world || executor_ || is_closing_) {
    return netfold::fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "connect once, before closing, with one address for each of the {} ranks, in their order ({} given)",
            options_.world, addresses.size()));
  }
  std::vector<link::Address> parsed;
  for (const std::string& text : addresses) {
    const auto address = link::parse_address(text);
    if (!address) return tl::unexpected(address.error());
    parsed.push_back(*address);
  }
  const auto goes_on = [&] { return !is_closing_ && (!keep_going || keep_going()); };
  const Nanoseconds deadline = now() + from_seconds(options_.timeout_s);
  if (auto connected = mesh_->connect(parsed, deadline, goes_on); !connected) return connected;
  auto arena = mesh_->share_memory(DirectExecutor::shape_for(options_.world), deadline, goes_on);
  if (!arena) return tl::unexpected(arena.error());
  executor_ = std::make_unique<Executor>(options_.rank, mesh_->links());
  runners_ = {executor_.get()};
  if (*arena) {
    direct_ = std::make_unique<DirectExecutor>(options_.rank, std::move(*arena), mesh_->bells());
    runners_.push_back(direct_.get());
  }
  const int local = mesh_->local_peers();
  const int cores = std::max(1, static_cast<int>(allowed_cores().size()));
  const bool has_cores = local + 1 <= cores;
  ranks_a_core_ = (local + cores) / cores;
  if (local > 0) {
    caller_yields_ = kCallerYields;
    thread_yields_ = has_cores ? kCallerYields : kThreadYields;
  }
  vain_yields_ = has_cores ? kVainYieldsWithCores : kVainYields;
  is_alone_ = has_cores;
  last_progress_ = now();
  note_stats();
  const std::lock_guard lock(mutex_);
  plans_.set_networked(local + 1 < options_.world);
  is_connected_ = true;
  if (!options_.inline_progress && !is_closing_) thread_ = std::thread([this] { run(); });
  return {};
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

Result<void> HostGroup::validate(const AllReduce& request, const CollectiveOptions& options) const {
  if (auto valid = engine::check(request); !valid) return valid;
  if (!numbers::is_valid(options.bfp)) {
    return netfold::fail(ErrorCode::kInvalidArgument, "a bfp block is 8 to 128 elements, a mantissa 2 to 7 bits");
  }
  if (request.average && !folds(options.collective)) {
    return netfold::fail(ErrorCode::kInvalidArgument, fmt::format("a {} sums nothing: there is nothing to average",
                                                                  schedule::name_of(options.collective)));
  }
  return {};
}

Result<HostGroup::Ticket> HostGroup::hand_over(const AllReduce& request, const CollectiveOptions& options,
                                               bool is_awaited) {
  if (const auto valid = validate(request, options); !valid) return tl::unexpected(valid.error());
  const std::lock_guard lock(mutex_);
  if (!is_connected_ && !is_closing_) {
    return netfold::fail(ErrorCode::kInvalidArgument, "this group is not connected: call connect first");
  }
  std::vector<Slice> slices;
  if (!is_direct(options)) {
    auto planned = plans_.slices_of(request, options);
    if (!planned) return tl::unexpected(planned.error());
    slices = std::move(*planned);
  }
  const Ticket ticket = completions_.issue(is_awaited);
  if (failure_ || is_closing_) {
    completions_.add({ticket}, failure_ ? *failure_ : closed_error());
    return ticket;
  }
  submitted_.push_back({ticket, request, {request.format, options.bfp}, terms_of(request, options), std::move(slices)});
  has_submissions_ = true;
  if (callers_ > 0) caller_wakeup_.wake();
  if (!is_awaited && !options_.inline_progress) thread_wakeup_.wake();
  return ticket;
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

void HostGroup::close(std::optional<Error> error) {
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
  if (mesh_ && executor_) {
    say_goodbye();
    fail(closed_error(), false);
    note_stats();
    runners_.clear();
    executor_.reset();
    direct_.reset();
    mesh_.reset();
  }
  completions_.close();
}

HostGroupStats HostGroup::stats() const {
  if (const std::unique_lock driving(driving_, std::try_to_lock); driving && executor_) note_stats();
  const std::lock_guard lock(mutex_);
  return stats_;
}

nlohmann::json HostGroup::counters() const {
  const HostGroupStats now = stats();
  return {{"shm_peers", now.shm_peers},
          {"shm_sent_bytes", now.shm.sent_bytes},
          {"shm_received_bytes", now.shm.received_bytes},
          {"tcp_peers", now.tcp_peers},
          {"tcp_sent_bytes", now.tcp.sent_bytes},
          {"tcp_received_bytes", now.tcp.received_bytes},
          {"reduced_elements", now.reduced_elements},
          {"cpu_s", now.cpu_s}};
}

std::optional<Error> HostGroup::error() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostGroup::run() {
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

// True if anything moved. An error fails the group.
bool HostGroup::pump() {
  bool has_moved = false;
  for (Runner* const runner : runners_) {
    const auto moved = runner->pump();
    if (!moved) {
      fail(moved.error(), true);
      return false;
    }
    has_moved = has_moved || *moved;
  }
  has_moved_ = has_moved_ || has_moved;
  return has_moved;
}

// True if anything moved.
bool HostGroup::step() {
  if (has_submissions_) take_submissions();
  if (has_failed_) return false;
  bool has_moved = pump();
  if (has_failed_) return false;
  has_moved = check() || has_moved;  // before finished ones are taken: it may finish some
  if (auto finished = take_finished(); !finished.empty()) {
    if (is_thread()) cpu_s_ = thread_cpu_s();
    note_stats();
    completions_.add(finished, std::nullopt);
  }
  return has_moved;
}

void HostGroup::take_submissions() {
  std::deque<Submitted> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);  // nothing once the group has failed
    has_submissions_ = false;
  }
  if (!taken.empty() && is_idle()) last_progress_ = now();
  for (auto& [ticket, request, wire, terms, slices] : taken) {
    terms.number = ++all_reduces_;
    if (direct_) direct_->announce(terms);
    if (slices.empty()) {
      direct_->submit(ticket, request, wire, terms);
    } else {
      executor_->submit(std::make_shared<Reduction>(ticket, request, wire, terms, options_.rank, options_.world),
                        slices);
    }
  }
}

std::vector<HostGroup::Ticket> HostGroup::take_finished() {
  std::vector<Ticket> finished;
  for (Runner* const runner : runners_) {
    const std::vector<Ticket> more = runner->take_finished();
    finished.insert(finished.end(), more.begin(), more.end());
  }
  return finished;
}

bool HostGroup::waits_for(int rank) const {
  return std::ranges::any_of(runners_, [&](const Runner* each) { return each->waits_for(rank); });
}

std::vector<int> HostGroup::blocking_ranks() const {
  for (const Runner* const runner : runners_) {
    if (auto ranks = runner->blocking_ranks(); !ranks.empty()) return ranks;
  }
  return {};
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

// True if anything moved meanwhile.
bool HostGroup::check() {
  time_ = now();
  if (std::exchange(has_moved_, false)) last_progress_ = time_;
  if (time_ < next_look_) return false;
  next_look_ = time_ + kLookPeriod;
  if (const auto heard = mesh_->listen_to_all(); !heard) {
    fail(heard.error(), true);
    return false;
  }
  const bool has_moved = pump();  // what a rank sent before it left is there now, if it ever will be
  if (has_failed_) return false;
  if (!is_idle()) check_blocked_by_the_gone();
  if (!has_failed_) check_progress(time_);
  return has_moved;
}

// A clean leave fails nothing by itself: what the rank sent before is still there to be read.
void HostGroup::check_blocked_by_the_gone() {
  for (int rank = 0; rank < options_.world; ++rank) {
    if (rank == options_.rank) continue;
    const auto& ended = mesh_->link(rank).ended();
    // What was sent over TCP may still be on its way when the leave is heard, and ends with the connection; what is in
    // shared memory was there before.
    const bool is_shm = std::string_view(mesh_->link(rank).kind()) == "shm";
    const bool is_gone = ended || (is_shm && mesh_->has_left(rank));
    if (!is_gone || !waits_for(rank)) continue;
    const std::string why = mesh_->has_left(rank) ? "has left" : *ended;
    return fail({ErrorCode::kPeerFailed,
                 fmt::format("rank {} {} while rank {} waits for it: ranks must submit the same collectives "
                             "before they leave",
                             rank, why, options_.rank),
                 rank},
                true);
  }
}

// How long a rank is stuck before it says so. Once somebody has, those who can must answer soon: whoever says nothing
// is taken for the one that stalls.
Nanoseconds HostGroup::patience() const {
  const Nanoseconds quarter = from_seconds(options_.timeout_s / 4);
  return mesh_->somebody_waits() ? std::min(quarter, kPatienceWithTheWaiting) : quarter;
}

// Everybody waits for somebody when one rank stalls. Each says for whom, so that all find the same one (waits.h); who
// moves on says that too, and nobody gives up as long as those he waits for do.
void HostGroup::check_progress(Nanoseconds time) {
  const Nanoseconds idle = is_idle() ? 0 : time - last_progress_;
  if (direct_ && idle > kStallTime) {
    if (const auto agreed = direct_->check_agreement(); !agreed) return fail(agreed.error(), true);
  }
  const bool is_stuck = idle > patience();
  std::vector<int> waits_for = is_stuck ? blocking_ranks() : std::vector<int>{};
  if (waits_for != announced_) {
    mesh_->say_waiting(waits_for);
    announced_ = waits_for;
  }
  const Nanoseconds timeout = from_seconds(options_.timeout_s);
  if (!is_stuck) {
    if (mesh_->somebody_waits() && last_progress_ - said_moving_ > timeout / 8) {
      mesh_->say_moving();
      said_moving_ = time;
    }
    return;
  }
  if (time - last_progress_ <= timeout) return;
  std::vector<Standing> standings = mesh_->standings();
  standings[static_cast<std::size_t>(options_.rank)].waits_for = waits_for;
  const Stall stall = find_stall(standings, options_.rank);
  if (time - stall.moved_at <= timeout) return;
  // Those whom it concerns speak first: each of them can name the other.
  const auto& circle = stall.circle;
  const bool is_outside = std::find(circle.begin(), circle.end(), options_.rank) == circle.end();
  if (stall.rank == kNoRank && is_outside && time - last_progress_ <= timeout + kCourtesy) return;
  fail(timed_out(stall), true);
}

Error HostGroup::timed_out(const Stall& stall) const {
  const std::string so = fmt::format("within the timeout of {:g} s, so rank {} cannot finish its collective",
                                     options_.timeout_s, options_.rank);
  if (stall.rank != kNoRank) {
    return {ErrorCode::kTimeout, fmt::format("rank {} has not taken part {}", stall.rank, so), stall.rank};
  }
  const auto other = std::find_if(stall.circle.begin(), stall.circle.end(), [&](int r) { return r != options_.rank; });
  return {ErrorCode::kTimeout,
          fmt::format("nothing has moved between ranks {} {}: is a connection between them cut?",
                      fmt::join(stall.circle, " and "), so),
          other == stall.circle.end() ? kNoRank : *other};
}

void HostGroup::fail(const Error& error, bool tell_others) {
  std::vector<Ticket> tickets;
  for (Runner* const runner : runners_) {
    const std::vector<Ticket> more = runner->abandon();
    tickets.insert(tickets.end(), more.begin(), more.end());
  }
  completions_.add(take_finished(), std::nullopt);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    for (const auto& submitted : submitted_) tickets.push_back(submitted.ticket);
    submitted_.clear();
    has_submissions_ = false;
  }
  if (tell_others && !has_failed_) mesh_->say_failed(error);
  has_failed_ = true;
  completions_.add(tickets, error);
}

// What others still need of us may be on its way to the kernel.
void HostGroup::say_goodbye() {
  if (has_failed_) return;
  if (parting_error_ || !is_idle()) {
    const Error unfinished{ErrorCode::kPeerFailed,
                           fmt::format("rank {} closed in the middle of a collective", options_.rank)};
    Error told = parting_error_.value_or(unfinished);
    if (told.rank == kNoRank) told.rank = options_.rank;
    mesh_->say_failed(told);
    return;
  }
  for (const Nanoseconds deadline = now() + kGoodbyeTime; mesh_->has_unsent() && now() < deadline;) {
    if (!executor_->pump()) break;
    mesh_->sleep(caller_wakeup_.descriptor(), now() + kMillisecond);
  }
  mesh_->leave();
}

void HostGroup::note_stats() const {
  HostGroupStats stats;
  for (const Runner* const runner : runners_) stats.reduced_elements += runner->reduced_elements();
  stats.cpu_s = cpu_s_;
  for (const link::StreamLink* each : mesh_->links()) {
    if (each == nullptr) continue;
    const bool is_shm = std::string_view(each->kind()) == "shm";
    (is_shm ? stats.shm_peers : stats.tcp_peers) += 1;
    auto& sum = is_shm ? stats.shm : stats.tcp;
    sum.sent_bytes += each->stats().sent_bytes;
    sum.received_bytes += each->stats().received_bytes;
  }
  const std::lock_guard lock(mutex_);
  stats_ = stats;
}

}  // namespace netfold::engine

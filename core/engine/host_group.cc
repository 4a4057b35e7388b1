#include "engine/host_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <thread>

namespace netfold::engine {
namespace {

constexpr Nanoseconds kLookPeriod = 20 * kMillisecond;  // at the life lines, while busy
constexpr Nanoseconds kPatienceWithTheWaiting = 100 * kMillisecond;
constexpr Nanoseconds kCourtesy = 500 * kMillisecond;
constexpr Nanoseconds kGoodbyeTime = 2 * kSecond;  // for the last bytes to reach the kernel
constexpr int kSpins = 2000;
constexpr int kYields = 100;

Error closed_error() {
  return {ErrorCode::kInvalidArgument, "this group has been closed: open another", kNoRank};
}

int available_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

}  // namespace

Result<std::unique_ptr<HostGroup>> HostGroup::open(HostGroupOptions options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return netfold::fail(ErrorCode::kInvalidArgument, fmt::format("rank {} of a world of {}: ranks are 0 to world - 1",
                                                                  options.rank, options.world));
  }
  const auto address = link::parse_address(options.listen);
  if (!address) return tl::unexpected(address.error());
  auto mesh = Mesh::listen(options.rank, options.world, *address, options.shm, jobs::Secret::from(options.secret));
  if (!mesh) return tl::unexpected(mesh.error());
  return std::unique_ptr<HostGroup>(new HostGroup(std::move(options), std::move(*mesh)));
}

HostGroup::HostGroup(HostGroupOptions options, std::unique_ptr<Mesh> mesh)
    : options_(std::move(options)),
      mesh_(std::move(mesh)),
      address_(link::to_string(mesh_->address())),
      plans_(options_.world, options_.rank) {}

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
  if (auto connected = mesh_->connect(parsed, now() + from_seconds(options_.timeout_s), goes_on); !connected) {
    return connected;
  }
  executor_ = std::make_unique<Executor>(options_.rank, mesh_->links());
  // Where every rank of this machine has a core, looking out for a while is faster than sleeping. Where cores are few,
  // they are given to those who have work.
  const bool is_roomy = mesh_->local_peers() + 1 <= available_cores();
  spins_ = is_roomy ? kSpins : 0;
  yields_ = kYields;
  last_progress_ = now();
  note_stats();
  const std::lock_guard lock(mutex_);
  is_connected_ = true;
  if (!options_.inline_progress && !is_closing_) thread_ = std::thread([this] { run(); });
  return {};
}

Result<HostGroup::Ticket> HostGroup::submit(const AllReduce& request, const CollectiveOptions& options) {
  if (const auto valid = engine::check(request); !valid) return tl::unexpected(valid.error());
  if (!numbers::is_valid(options.bfp)) {
    return netfold::fail(ErrorCode::kInvalidArgument, "a bfp block is 8 to 128 elements, a mantissa 2 to 7 bits");
  }
  if (request.average && !folds(options.collective)) {
    return netfold::fail(ErrorCode::kInvalidArgument, fmt::format("a {} sums nothing: there is nothing to average",
                                                                  schedule::name_of(options.collective)));
  }
  const std::lock_guard lock(mutex_);
  if (!is_connected_ && !is_closing_) {
    return netfold::fail(ErrorCode::kInvalidArgument, "this group is not connected: call connect first");
  }
  auto slices = plans_.slices_of(request, options);
  if (!slices) return tl::unexpected(slices.error());
  const Ticket ticket = ++last_ticket_;
  if (failure_ || is_closing_) {
    completions_.add({ticket}, failure_ ? *failure_ : closed_error());
    return ticket;
  }
  auto reduction = std::make_shared<Reduction>(ticket, request, numbers::WireFormat{request.format, options.bfp},
                                               terms_of(request, options), options_.rank, options_.world);
  submitted_.push_back({std::move(reduction), std::move(*slices)});
  has_submissions_ = true;
  if (!options_.inline_progress) wakeup_.wake();
  return ticket;
}

template <class Take>
std::optional<Completion> HostGroup::drive(Take take, Nanoseconds timeout) {
  const Nanoseconds deadline = now() + timeout;
  for (;;) {
    if (auto taken = take(0)) return taken;
    const Nanoseconds time = now();
    if (time >= deadline) return std::nullopt;
    if (is_closing_) return take(deadline - time);
    const std::unique_lock lock(driving_, std::try_to_lock);
    if (!lock) {  // somebody else drives
      if (auto taken = take(std::min<Nanoseconds>(deadline - time, kMillisecond))) return taken;
      continue;
    }
    if (!executor_ || has_failed_) return take(deadline - time);  // nobody can drive
    if (step()) continue;
    if (auto taken = take(0)) return taken;
    rest(deadline);
  }
}

std::optional<Completion> HostGroup::wait(Ticket ticket, Nanoseconds timeout) {
  if (!options_.inline_progress) return completions_.wait(ticket, timeout);
  return drive([&](Nanoseconds most) { return completions_.wait(ticket, most); }, timeout);
}

std::optional<Completion> HostGroup::next_completion(Nanoseconds timeout) {
  if (!options_.inline_progress) return completions_.next(timeout);
  return drive([&](Nanoseconds most) { return completions_.next(most); }, timeout);
}

void HostGroup::close(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closing_) parting_error_ = std::move(error);
    is_closing_ = true;
  }
  wakeup_.wake();
  const std::lock_guard driving(driving_);
  if (thread_.joinable()) thread_.join();
  if (mesh_ && executor_) {
    say_goodbye();
    fail(closed_error(), false);
    note_stats();
    executor_.reset();
    mesh_.reset();
  }
  completions_.close();
}

HostGroupStats HostGroup::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::optional<Error> HostGroup::error() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostGroup::run() {
  set_up_thread(fmt::format("nf-rank-{}", options_.rank), options_.core);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closing_) return;
    }
    if (!step()) rest(kNever);
  }
}

// True if anything moved. An error fails the group.
bool HostGroup::pump() {
  const auto moved = executor_->pump();
  if (!moved) {
    fail(moved.error(), true);
    return false;
  }
  if (*moved) last_progress_ = now();
  return *moved;
}

// True if anything moved.
bool HostGroup::step() {
  if (has_submissions_) take_submissions();
  if (has_failed_) return false;
  bool has_moved = pump();
  if (has_failed_) return false;
  has_moved = check() || has_moved;  // before finished ones are taken: it may finish some
  if (auto finished = executor_->take_finished(); !finished.empty()) {
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
  if (!taken.empty() && executor_->is_idle()) last_progress_ = now();
  for (auto& [reduction, slices] : taken) executor_->submit(std::move(reduction), slices);
}

// Looks for a while whether something comes, then sleeps until it does.
void HostGroup::rest(Nanoseconds until) {
  if (!has_failed_ && !executor_->is_idle()) {
    for (int spin = 0; spin < spins_; ++spin) {
      if (look_again()) return;
      __builtin_ia32_pause();
    }
    for (int i = 0; i < yields_; ++i) {
      sched_yield();
      if (look_again()) return;
    }
    if (!executor_->arm()) return;
    const Nanoseconds soon = std::min(patience(), kLookPeriod * 5);
    until = std::min(until, std::max(last_progress_ + patience(), now() + soon));
  }
  if (has_submissions_ && !has_failed_) return;
  if (has_failed_) {  // only close() is still of interest
    std::array<pollfd, 1> descriptors{{{wakeup_.descriptor(), POLLIN, 0}}};
    wait_for(descriptors, until);
  } else {
    mesh_->sleep(wakeup_.descriptor(), until);
  }
  wakeup_.clear();
  next_look_ = 0;
}

bool HostGroup::look_again() {
  return has_submissions_ || pump() || has_failed_;
}

// True if anything moved meanwhile.
bool HostGroup::check() {
  const Nanoseconds time = now();
  if (time < next_look_) return false;
  next_look_ = time + kLookPeriod;
  if (const auto heard = mesh_->listen_to_all(); !heard) {
    fail(heard.error(), true);
    return false;
  }
  const bool has_moved = pump();  // what a rank sent before it left is there now, if it ever will be
  if (has_failed_) return false;
  if (!executor_->is_idle()) check_blocked_by_the_gone();
  if (!has_failed_) check_progress(time);
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
    if (!is_gone || (!executor_->waits_for_data_of(rank) && !executor_->waits_for_room_at(rank))) continue;
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
  const bool is_stuck = !executor_->is_idle() && time - last_progress_ > patience();
  std::vector<int> waits_for = is_stuck ? executor_->blocking_ranks() : std::vector<int>{};
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
  std::vector<Ticket> tickets = executor_->abandon();
  for (const Ticket finished : executor_->take_finished()) completions_.add({finished}, std::nullopt);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    for (const auto& submitted : submitted_) tickets.push_back(submitted.reduction->ticket());
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
  if (parting_error_ || !executor_->is_idle()) {
    const Error unfinished{ErrorCode::kPeerFailed,
                           fmt::format("rank {} closed in the middle of a collective", options_.rank)};
    Error told = parting_error_.value_or(unfinished);
    if (told.rank == kNoRank) told.rank = options_.rank;
    mesh_->say_failed(told);
    return;
  }
  for (const Nanoseconds deadline = now() + kGoodbyeTime; mesh_->has_unsent() && now() < deadline;) {
    if (!executor_->pump()) break;
    mesh_->sleep(wakeup_.descriptor(), now() + kMillisecond);
  }
  mesh_->leave();
}

void HostGroup::note_stats() {
  HostGroupStats stats;
  stats.reduced_elements = executor_->reduced_elements();
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

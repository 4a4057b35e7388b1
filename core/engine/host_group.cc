#include "engine/host_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "link/tcp/tcp_stream.h"

namespace netfold::engine {
namespace {

constexpr Nanoseconds kStallTime = 100 * kMillisecond;  // without progress: do ranks mean the same at all?
constexpr Nanoseconds kPatienceWithTheWaiting = 100 * kMillisecond;
constexpr Nanoseconds kCourtesy = 500 * kMillisecond;
constexpr Nanoseconds kGoodbyeTime = 2 * kSecond;  // for the last bytes to reach the kernel

Error closed_error() {
  return {ErrorCode::kInvalidArgument, "this group has been closed: open another", kNoRank};
}

}  // namespace

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
  learn_to_wait(local);
  last_progress_ = now();
  note_stats();
  const std::lock_guard lock(mutex_);
  plans_.set_networked(local + 1 < options_.world);
  is_connected_ = true;
  if (!options_.inline_progress && !is_closing_) thread_ = std::thread([this] { run_thread(); });
  return {};
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

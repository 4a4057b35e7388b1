#include "group/via_peers/peer_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace netfold::group {
namespace {

constexpr Nanoseconds kStallTime = 100 * kMillisecond;  // without progress: do ranks mean the same at all?
constexpr Nanoseconds kPatienceWithTheWaiting = 100 * kMillisecond;
constexpr Nanoseconds kAskAfter = kSecond;         // without progress: do the other machines still confirm?
constexpr Nanoseconds kGoodbyeMax = 30 * kSecond;  // without a byte that reaches the kernel, however long the timeout
constexpr Nanoseconds kHeardMax = 100 * kMillisecond;  // for the others to hear that this rank leaves: they may compute

struct Planned final : Prepared {
  std::vector<Slice> slices;  // of the executor; none: it is the direct executor's
};

std::vector<link::StreamLink*> pointers_to(const std::vector<std::unique_ptr<link::StreamLink>>& links) {
  std::vector<link::StreamLink*> pointers;
  for (const auto& each : links) pointers.push_back(each.get());
  return pointers;
}

}  // namespace

PeerSession::PeerSession(PeerSessionOptions options, PeerConnections connections, Plans plans, Nanoseconds now)
    : options_(options),
      connections_(std::move(connections)),
      executor_(std::make_unique<Executor>(options_.rank, pointers_to(connections_.data))),
      runners_{executor_.get()},
      time_(now),
      last_progress_(now),
      messages_progress_(now),
      plans_(std::move(plans)),
      late_plans_(plans_) {
  if (!connections_.messages.empty()) {
    messages_ = std::make_unique<Messages>(options_.rank, pointers_to(connections_.messages));
    runners_.push_back(messages_.get());
  }
  if (!connections_.arena) return;
  direct_ = std::make_unique<DirectExecutor>(options_.rank, std::move(connections_.arena), connections_.bells);
  runners_.push_back(direct_.get());
}

PeerSession::~PeerSession() = default;

// --- Requests ---

Result<std::unique_ptr<Prepared>> PeerSession::prepare(const CollectiveRequest& request) {
  if (const auto valid = check(request); !valid) return tl::unexpected(valid.error());
  if (!numbers::is_valid(request.bfp)) {
    return fail(ErrorCode::kInvalidArgument, "a bfp block is 8 to 128 elements, a mantissa 2 to 7 bits");
  }
  if (schedule::is_message(request.collective)) {
    if (const auto valid = check_message(request); !valid) return tl::unexpected(valid.error());
    return nullptr;
  }
  if (schedule::is_exchange(request.collective)) {
    if (const auto valid = check_parts(request); !valid) return tl::unexpected(valid.error());
  }
  if (request.average && !folds(request.collective)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a {} sums nothing: there is nothing to average", schedule::name_of(request.collective)));
  }
  if (is_direct(request)) return nullptr;
  auto slices = plans_.slices_of(request);
  if (!slices) return tl::unexpected(slices.error());
  auto planned = std::make_unique<Planned>();
  planned->slices = std::move(*slices);
  return planned;
}

Result<void> PeerSession::check_message(const CollectiveRequest& request) const {
  const bool is_send = request.collective == schedule::Collective::kSend;
  if (!messages_) return fail(ErrorCode::kInvalidArgument, "these ranks have no links for messages");
  if (request.format != numbers::Format::kNone) {
    return fail(ErrorCode::kInvalidArgument, "a message travels as it lies in memory");
  }
  if (request.tag >= Messages::kOwnTags) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the tag of a message is at most {}", Messages::kOwnTags - 1));
  }
  const bool is_any = !is_send && request.peer == kNoRank;
  if (is_any || (request.peer >= 0 && request.peer < options_.world && request.peer != options_.rank)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("rank {} cannot {} rank {}: there are ranks 0 to {}, and it is one of them", options_.rank,
                          is_send ? "send to" : "receive from", request.peer, options_.world - 1));
}

Result<void> PeerSession::check_parts(const CollectiveRequest& request) const {
  const auto world = static_cast<std::size_t>(options_.world), rank = static_cast<std::size_t>(options_.rank);
  const char* const what = schedule::name_of(request.collective);
  if (!request.parts || request.parts->sends.size() != world || request.parts->receives.size() != world) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} needs a number of elements for each of the {} ranks", what, world));
  }
  const schedule::Parts& parts = *request.parts;
  if (request.root < 0 || request.root >= options_.world) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("root {} is not a rank of a world of {}", request.root, options_.world));
  }
  if (parts.sends[rank] != parts.receives[rank]) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("in {} rank {} sends itself {} elements and receives {}", what,
                                                         options_.rank, parts.sends[rank], parts.receives[rank]));
  }
  if (request.format != numbers::Format::kNone) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} copies elements as they lie in memory", what));
  }
  const bool lacks_memory = (parts.sent() > 0 && request.in == nullptr) || (parts.received() > 0 && !request.out);
  if (!lacks_memory) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} needs memory to read from and to write to", what));
}

bool PeerSession::is_direct(const CollectiveRequest& request) const {
  return direct_ && request.algorithm.name == schedule::kDirect &&
         request.collective == schedule::Collective::kAllReduce && request.format != numbers::Format::kNone &&
         !request.is_encoded;
}

bool PeerSession::is_quick(const CollectiveRequest& request) const {
  return is_direct(request) && announced_.empty();
}

void PeerSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) {
  has_moved_ = has_moved_ || is_idle();
  if (schedule::is_message(request.collective)) {
    have_messages_moved_ = have_messages_moved_ || messages_->is_idle();
    return messages_->submit(ticket, request, request.count * numbers::size_bytes(request.type));
  }
  Terms terms = terms_of(request);
  terms.number = ++collectives_;
  if (direct_) direct_->announce(terms);
  if (!prepared) return direct_->submit(ticket, request, terms);
  executor_->submit(std::make_shared<Reduction>(ticket, request, terms, options_.rank, options_.world),
                    static_cast<const Planned&>(*prepared).slices);
}

void PeerSession::submit_unprepared(Ticket ticket, const CollectiveRequest& request) {
  if (is_direct(request)) return submit(ticket, request, nullptr);
  auto planned = std::make_unique<Planned>();
  auto slices = late_plans_.slices_of(request);
  assert(slices);  // both algorithms serve every number of ranks and elements
  planned->slices = std::move(*slices);
  submit(ticket, request, std::move(planned));
}

void PeerSession::pace(double bytes_s) {
  each_link([&](link::StreamLink& each) { each.pace(bytes_s / (options_.world - 1)); });
}

template <class Visit>
void PeerSession::each_link(Visit visit) const {
  for (const auto* const links : {&connections_.data, &connections_.messages}) {
    for (const auto& each : *links) {
      if (each) visit(*each);
    }
  }
}

std::vector<Ticket> PeerSession::take_finished() {
  std::vector<Ticket> finished;
  for (Runner* const runner : runners_) {
    const std::vector<Ticket> more = runner->take_finished();
    finished.insert(finished.end(), more.begin(), more.end());
  }
  return finished;
}

bool PeerSession::is_idle() const {
  return std::ranges::all_of(runners_, [](const Runner* each) { return each->is_idle(); });
}

// --- Progress ---

Result<bool> PeerSession::move() {
  bool has_moved = false;
  for (Runner* const runner : runners_) {
    const auto moved = runner->pump();
    if (!moved) return moved;
    has_moved = has_moved || *moved;
    if (runner == messages_.get()) have_messages_moved_ = have_messages_moved_ || *moved;
  }
  has_moved_ = has_moved_ || has_moved;
  return has_moved;
}

Result<bool> PeerSession::pump(Nanoseconds now) {
  const auto moved = move();
  if (!moved) return moved;
  time_ = now;
  if (std::exchange(has_moved_, false)) last_progress_ = time_ - lost_time_;
  if (std::exchange(have_messages_moved_, false) || !messages_ || messages_->is_idle()) messages_progress_ = time_;
  if (time_ < next_look_) return *moved;
  next_look_ = time_ + kLookPeriod;
  const auto looked = look_at_the_others();
  if (!looked) return looked;
  return *moved || *looked;
}

Result<bool> PeerSession::look_at_the_others() {
  if (const auto heard = connections_.life_lines->listen(time_); !heard) return tl::unexpected(heard.error());
  const auto moved = move();  // what a rank sent before it left is there now, if it ever will be
  if (!moved) return moved;
  if (!is_idle()) {
    if (const auto blocked = check_blocked_by_the_gone(); !blocked) return tl::unexpected(blocked.error());
  }
  if (const auto goes_on = check_progress(); !goes_on) return tl::unexpected(goes_on.error());
  return moved;
}

bool PeerSession::waits_for(int rank) const {
  return std::ranges::any_of(runners_, [&](const Runner* each) { return each->waits_for(rank); });
}

std::vector<int> PeerSession::blocking_ranks() const {
  for (const Runner* const runner : runners_) {
    if (auto ranks = runner->blocking_ranks(); !ranks.empty()) return ranks;
  }
  return {};
}

// A clean leave fails nothing by itself: what the rank sent before is still there to be read.
Result<void> PeerSession::check_blocked_by_the_gone() const {
  for (int rank = 0; rank < options_.world; ++rank) {
    if (rank == options_.rank) continue;
    const auto place = static_cast<std::size_t>(rank);
    const bool awaits_collective = std::ranges::any_of(
        runners_, [&](const Runner* each) { return each != messages_.get() && each->waits_for(rank); });
    const auto* blocking = &connections_.data[place];
    if (!is_blocked_by_the_gone(rank, *blocking, awaits_collective)) {
      if (!messages_) continue;
      blocking = &connections_.messages[place];
      if (!is_blocked_by_the_gone(rank, *blocking, messages_->waits_for(rank))) continue;
    }
    const bool has_left = connections_.life_lines->has_left(rank);
    const std::string why = has_left ? "has left" : *(*blocking)->ended();
    return fail(ErrorCode::kPeerFailed,
                fmt::format("rank {} {} while rank {} waits for it{}", rank, why, options_.rank,
                            has_left ? ": ranks must submit the same collectives before they leave" : ""),
                rank);
  }
  return {};
}

// What was sent over TCP may still be on its way when the leave is heard, and ends with the connection; what is in
// shared memory was there before.
bool PeerSession::is_blocked_by_the_gone(int rank, const std::unique_ptr<link::StreamLink>& link, bool waits) const {
  const bool is_shm = std::string_view(link->kind()) == "shm";
  return waits && (link->ended() || (is_shm && connections_.life_lines->has_left(rank)));
}

// How long a rank is stuck before it says so. Once another has said so, those that can must answer soon: a rank that
// says nothing is taken for the one that stalls.
Nanoseconds PeerSession::patience() const {
  const Nanoseconds quarter = options_.timeout / 4;
  return connections_.life_lines->somebody_waits() ? std::min(quarter, kPatienceWithTheWaiting) : quarter;
}

// When one rank stalls, every rank soon waits for another. Each says for which, so that all find the same one
// (waits.h). A rank that moves on says that too, and no rank gives up as long as those it waits for do.
Result<void> PeerSession::check_progress() {
  LifeLines& life_lines = *connections_.life_lines;
  const Nanoseconds waited_elsewhere = elsewhere_ ? time_ - elsewhere_->since : 0;
  const Nanoseconds idle = is_idle() ? waited_elsewhere : time_ - last_progress_;
  if (direct_ && idle > kStallTime) {
    if (auto agreed = direct_->check_agreement(); !agreed) return agreed;
  }
  if (auto known = check_silence(idle); !known) return known;
  const bool is_stuck = idle > patience();
  std::vector<int> waits_for = is_stuck ? blocking_ranks() : std::vector<int>{};
  if (is_stuck && elsewhere_) waits_for.push_back(elsewhere_->rank);
  if (waits_for != announced_) {
    life_lines.say_waiting(waits_for);
    announced_ = waits_for;
  }
  if (!is_stuck) {
    if (const auto goes_on = check_messages_progress(); !goes_on) return goes_on;
    if (life_lines.somebody_waits() && last_progress_ - said_moving_ > options_.timeout / 8) {
      life_lines.say_moving();
      said_moving_ = time_;
    }
    return {};
  }
  if (idle <= options_.timeout) return check_messages_progress();
  std::vector<Standing> standings = life_lines.standings();
  standings[static_cast<std::size_t>(options_.rank)].waits_for = std::move(waits_for);
  const Stall stall = find_stall(standings, options_.rank);
  if (time_ + lost_time_ - stall.moved_at <= options_.timeout) return {};  // it moved behind the time that was lost
  if (auto cut = cut_off()) return tl::unexpected(std::move(*cut));
  // The ranks of the circle speak first: each of them can name the other.
  const auto& circle = stall.circle;
  const bool is_outside = std::find(circle.begin(), circle.end(), options_.rank) == circle.end();
  if (stall.rank == kNoRank && is_outside && idle <= options_.timeout + kCourtesy) return {};
  return tl::unexpected(timed_out(stall));
}

// Collectives that go on do not excuse a message that never comes.
Result<void> PeerSession::check_messages_progress() {
  if (time_ - messages_progress_ <= options_.timeout + kCourtesy) return {};
  const auto ranks = messages_->blocking_ranks();
  if (ranks.empty()) return {};
  return fail(ErrorCode::kTimeout,
              fmt::format("no message has moved between rank {} and {} within the timeout of {:g} s", options_.rank,
                          ranks.size() == 1 ? fmt::format("rank {}", ranks.front()) : "any other",
                          to_seconds(options_.timeout)),
              ranks.size() == 1 ? ranks.front() : kNoRank);
}

// A machine that is cut off in one direction still says for whom it waits, or still hears the others: no standing tells
// it from them. But its kernel does not confirm what the other ranks send.
std::optional<Error> PeerSession::cut_off() const {
  const auto rank = connections_.life_lines->cut_off(options_.timeout / 2, time_);
  if (!rank) return std::nullopt;
  return cut_off_error(ErrorCode::kTimeout, *rank,
                       fmt::format("so rank {} cannot finish its collective within the timeout of {:g} s",
                                   options_.rank, to_seconds(options_.timeout)));
}

// The kernel confirms for a process that computes or is stopped, too. So silence is the fault of the machine or of the
// way to it, and the timeout need not be over to know.
Result<void> PeerSession::check_silence(Nanoseconds waited) {
  if (!options_.elastic || waited < kAskAfter) return {};
  connections_.life_lines->ask(time_);
  const auto rank = connections_.life_lines->silent(time_);
  if (!rank) return {};
  return tl::unexpected(cut_off_error(ErrorCode::kPeerFailed, *rank, "for much longer than is usual on its way"));
}

Nanoseconds PeerSession::silence_deadline() const {
  return options_.elastic ? time_ + kAskAfter : kNever;
}

Error PeerSession::cut_off_error(ErrorCode code, int rank, const std::string& so) const {
  if (rank != options_.rank) {
    return {code,
            fmt::format("the machine of rank {} does not confirm what is sent to it, {}: is it cut off?", rank, so),
            rank};
  }
  return {code, fmt::format("no other machine confirms what rank {} sends, {}: is its machine cut off?", rank, so),
          rank};
}

Error PeerSession::timed_out(const Stall& stall) const {
  const std::string so = fmt::format("within the timeout of {:g} s, so rank {} cannot finish its collective",
                                     to_seconds(options_.timeout), options_.rank);
  if (stall.rank != kNoRank) {
    return {ErrorCode::kTimeout, fmt::format("rank {} has not taken part {}", stall.rank, so), stall.rank};
  }
  const auto other = std::find_if(stall.circle.begin(), stall.circle.end(), [&](int r) { return r != options_.rank; });
  return {ErrorCode::kTimeout,
          fmt::format("nothing has moved between ranks {} {}: is a connection between them cut?",
                      fmt::join(stall.circle, " and "), so),
          other == stall.circle.end() ? kNoRank : *other};
}

// --- The end ---

std::vector<Ticket> PeerSession::abort(const Error& error, Nanoseconds) {
  std::vector<Ticket> tickets;
  for (Runner* const runner : runners_) {
    const std::vector<Ticket> more = runner->abandon();
    tickets.insert(tickets.end(), more.begin(), more.end());
  }
  if (!has_left_) connections_.life_lines->say_failed(error);
  has_failed_ = true;
  return tickets;
}

// A receive for which nothing has come is nobody's loss.
bool PeerSession::may_leave() const {
  return std::ranges::all_of(runners_, [&](const Runner* each) {
    return each->is_idle() || (each == messages_.get() && messages_->may_leave());
  });
}

// What others still need of this rank may be on its way to the kernel, and they must hear that it leaves.
bool PeerSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  time_ = now;
  if (has_failed_) return true;
  if (has_left_) return now >= gives_up_at_ || connections_.life_lines->have_all_closed(now);
  if (error || !may_leave()) {
    const Error unfinished{ErrorCode::kPeerFailed,
                           fmt::format("rank {} closed in the middle of a collective", options_.rank)};
    Error told = error.value_or(unfinished);
    if (told.rank == kNoRank) told.rank = options_.rank;
    connections_.life_lines->say_failed(told);
    has_failed_ = true;
    return true;
  }
  const std::uint64_t sent_bytes = sent_to_all();
  if (gives_up_at_ == kNever || sent_bytes != sent_before_goodbye_) {  // a slow link may take a while
    gives_up_at_ = now + std::min(options_.timeout, kGoodbyeMax);
    sent_before_goodbye_ = sent_bytes;
  }
  if (has_unsent() && now < gives_up_at_ && executor_->pump() && (!messages_ || messages_->pump())) return false;
  connections_.life_lines->leave();
  has_left_ = true;
  gives_up_at_ = now + std::min(options_.timeout, kHeardMax);
  return false;
}

KeptPeers PeerSession::take_kept() {
  KeptPeers kept{std::vector<std::unique_ptr<KeptPeer>>(connections_.data.size()), connections_.bell};
  for (std::size_t rank = 0; rank < kept.peers.size(); ++rank) {
    auto& data = connections_.data[rank];
    if (!data || data->ended() || connections_.messages.empty() || connections_.messages[rank]->ended()) continue;
    auto line = connections_.life_lines->take(static_cast<int>(rank));
    if (!line) continue;
    kept.peers[rank] = std::make_unique<KeptPeer>(std::move(data), std::move(connections_.messages[rank]),
                                                  std::move(*line), connections_.bells[rank]);
  }
  return kept;
}

// --- Waiting ---

Nanoseconds PeerSession::deadline() const {
  if (gives_up_at_ != kNever) return time_ + kMillisecond;
  if (is_idle()) return kNever;
  const Nanoseconds soon = std::min(patience(), kLookPeriod * 5);
  // Nobody wakes this rank when it comes to wait for one that left before.
  if (connections_.life_lines->somebody_has_left()) return time_ + soon;
  const Nanoseconds next = std::max(last_progress_ + patience(), time_ + soon);
  return std::min(next, silence_deadline());
}

bool PeerSession::arm() {
  return std::ranges::all_of(runners_, [](Runner* each) { return each->arm(); });
}

// The bell comes last: on_wake() knows it by its place.
void PeerSession::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({connections_.life_lines->descriptor(), POLLIN, 0});
  each_link([&](const link::StreamLink& each) { each.add_polls(polls); });
  if (connections_.bell && !is_idle()) polls.push_back({connections_.bell->descriptor(), POLLIN, 0});
}

void PeerSession::on_wake(std::span<const pollfd> polls) {
  if (polls.empty()) return;
  next_look_ = 0;
  const pollfd& last = polls.back();
  if (connections_.bell && last.fd == connections_.bell->descriptor() && last.revents != 0) connections_.bell->clear();
}

bool PeerSession::has_unsent() const {
  bool has_unsent = false;
  each_link([&](const link::StreamLink& each) { has_unsent = has_unsent || each.has_unsent(); });
  return has_unsent;
}

std::uint64_t PeerSession::sent_to_all() const {
  std::uint64_t sum = 0;
  each_link([&](const link::StreamLink& each) { sum += each.stats().sent_bytes; });
  return sum;
}

std::uint64_t PeerSession::received_from_all() const {
  std::uint64_t sum = 0;
  each_link([&](const link::StreamLink& each) { sum += each.stats().received_bytes; });
  return sum;
}

std::span<const int> PeerSession::share_core(int core) {
  return direct_ ? direct_->say_core(core) : std::span<const int>{};
}

nlohmann::json PeerSession::counters() const {
  struct {
    int peers = 0;
    link::StreamStats bytes;
  } shm, tcp;
  std::uint64_t reduced_elements = 0;
  for (const Runner* const runner : runners_) reduced_elements += runner->reduced_elements();
  each_link([&](const link::StreamLink& each) {
    auto& sum = std::string_view(each.kind()) == "shm" ? shm : tcp;
    sum.bytes.sent_bytes += each.stats().sent_bytes;
    sum.bytes.received_bytes += each.stats().received_bytes;
  });
  for (const auto& each : connections_.data) {
    if (each) (std::string_view(each->kind()) == "shm" ? shm : tcp).peers += 1;
  }
  return {{"shm_peers", shm.peers},
          {"shm_sent_bytes", shm.bytes.sent_bytes},
          {"shm_received_bytes", shm.bytes.received_bytes},
          {"tcp_peers", tcp.peers},
          {"tcp_sent_bytes", tcp.bytes.sent_bytes},
          {"tcp_received_bytes", tcp.bytes.received_bytes},
          {"reduced_elements", reduced_elements}};
}

}  // namespace netfold::group

#include "group/via_both/split_session.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string_view>
#include <utility>

namespace netfold::group {
namespace {

constexpr std::string_view kSplit = "split", kInNetwork = "in-network";
constexpr const char* kDirect = "direct";
constexpr Ticket kWordTicket = 0;       // those of callers begin at 1
constexpr std::size_t kPartUnit = 128;  // elements: whole blocks of every bfp shape
constexpr std::int32_t kShareUnits = 1024;
constexpr double kPaceUnit = 1024;                       // bytes/s
constexpr std::int32_t kInTurn = 1, kSmallToSwitch = 2;  // flags of a word

std::int32_t pace_units(double bytes_s) {
  return static_cast<std::int32_t>(std::clamp(bytes_s / kPaceUnit, 0.0, static_cast<double>(INT32_MAX)));
}

}  // namespace

SplitSession::SplitSession(int rank, int world, std::unique_ptr<SwitchSession> in_switch,
                           std::unique_ptr<PeerSession> among_ranks, std::shared_ptr<ShareReport> report)
    : rank_(rank),
      world_(world),
      in_switch_(std::move(in_switch)),
      among_ranks_(std::move(among_ranks)),
      estimate_(world),
      share_(share_in(word_of(estimate_.next()))),
      report_(std::move(report)) {}

// --- Requests ---

bool SplitSession::is_split(const CollectiveRequest& request) {
  return request.collective == schedule::Collective::kAllReduce && request.algorithm.name == kSplit;
}

std::size_t SplitSession::encoded_bytes(const CollectiveRequest& request) {
  return numbers::encoded_bytes({request.format, request.bfp}, request.count);
}

Result<std::unique_ptr<Prepared>> SplitSession::prepare(const CollectiveRequest& request) {
  if (is_split(request) || request.algorithm.name == kInNetwork) return in_switch_->prepare(request);
  return among_ranks_->prepare(request);
}

void SplitSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) {
  waiting_.push_back({ticket, request, std::move(prepared)});
}

// True if the first tensor that waits has begun. All ranks begin everything in the same order.
bool SplitSession::start_next() {
  if (waiting_.empty() || waits_its_turn_) return false;
  const CollectiveRequest& request = waiting_.front().request;
  const bool is_large = is_split(request) && encoded_bytes(request) >= kSplitBytesMin;
  if (is_large && awaits_word_) return false;
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  Tensor& tensor = running_.back();
  if (is_large) {
    start_divided(tensor);
  } else {
    start_whole(tensor);
  }
  return true;
}

void SplitSession::start_whole(Tensor& tensor) {
  CollectiveRequest request = tensor.request;
  if (request.algorithm.name == kInNetwork || (is_split(request) && small_to_switch_)) {
    tensor.in_switch.is_over = false;
    return in_switch_->submit(tensor.ticket, request, std::move(tensor.prepared));
  }
  tensor.among_ranks.is_over = false;
  if (!is_split(request)) return among_ranks_->submit(tensor.ticket, request, std::move(tensor.prepared));
  request.algorithm.name = schedule::usual_in_rank_order(request.count * numbers::size_bytes(request.type), world_,
                                                         false, numbers::is_narrow(request.format));
  among_ranks_->submit_unprepared(tensor.ticket, request);
}

// Both parts write straight to where the sum belongs. In place, what they write over is copied first: one part may have
// ended when the other fails.
void SplitSession::start_divided(Tensor& tensor) {
  tensor.share = share_;
  tensor.is_divided = true;
  if (!share_.in_turn) report_->of_switch = share_.of_switch;
  small_to_switch_ = share_.small_to_switch;
  tensor.number = divided_++;
  send_word();

  const CollectiveRequest& request = tensor.request;
  const std::size_t units = request.count / kPartUnit;
  const std::size_t cut =
      tensor.share.of_switch >= 1
          ? request.count
          : static_cast<std::size_t>(std::lround(static_cast<double>(units) * tensor.share.of_switch)) * kPartUnit;
  const std::size_t element_bytes = numbers::size_bytes(request.type);
  const void* in = request.in;
  if (cut > 0 && cut < request.count && request.is_in_place()) {
    const std::size_t size_bytes = request.count * element_bytes;
    tensor.undo.start(request.out, size_bytes, buffers_);
    tensor.undo.save(0, size_bytes);
    in = tensor.undo.saved();
  }
  const auto part_of = [&](std::size_t first, std::size_t count) {
    CollectiveRequest part = request;
    part.in = static_cast<const std::byte*>(in) + first * element_bytes;
    part.out = static_cast<std::byte*>(request.out) + first * element_bytes;
    part.count = count;
    part.algorithm.name = kDirect;
    part.whole = request.count;
    part.part_at = first;
    return part;
  };
  tensor.in_switch = {part_of(0, cut), cut == 0};
  tensor.among_ranks = {part_of(cut, request.count - cut), cut == request.count};
  const bool has_both = !tensor.in_switch.is_over && !tensor.among_ranks.is_over;
  waits_its_turn_ = tensor.share.in_turn && has_both;
  if (!tensor.in_switch.is_over) start_in_switch(tensor);
  if (!tensor.among_ranks.is_over && !waits_its_turn_) start_among_ranks(tensor);
}

// About the large tensor after this one.
void SplitSession::send_word() {
  assert(!awaits_word_);
  if (rank_ == 0) word_ = word_of(estimate_.next());
  awaits_word_ = true;
  CollectiveRequest request;
  request.in = request.out = word_.data();
  request.count = word_.size();
  request.type = numbers::ElementType::kInt32;
  request.format = numbers::Format::kInt32;
  request.collective = schedule::Collective::kBroadcast;
  request.algorithm.name = "binomial";
  among_ranks_->submit_unprepared(kWordTicket, request);
}

SplitSession::Word SplitSession::word_of(const Share& share) {
  return {static_cast<std::int32_t>(std::lround(share.of_switch * kShareUnits)), pace_units(share.pace_bytes_s),
          pace_units(share.link_bytes_s), (share.in_turn ? kInTurn : 0) | (share.small_to_switch ? kSmallToSwitch : 0)};
}

Share SplitSession::share_in(const Word& word) const {
  Share share;
  share.of_switch = std::clamp(word[0], 0, kShareUnits) / static_cast<double>(kShareUnits);
  share.pace_bytes_s = std::max(word[1], 0) * kPaceUnit;
  share.link_bytes_s = std::max(word[2], 0) * kPaceUnit;
  share.in_turn = (word[3] & kInTurn) != 0;
  share.small_to_switch = (word[3] & kSmallToSwitch) != 0;
  return share;
}

void SplitSession::start_in_switch(Tensor& tensor) {
  tensor.in_switch.begun = time_;
  in_switch_->submit(tensor.ticket, tensor.in_switch.request, nullptr);
}

void SplitSession::start_among_ranks(Tensor& tensor) {
  tensor.among_ranks.begun = time_;
  set_pace();
  among_ranks_->submit_unprepared(tensor.ticket, tensor.among_ranks.request);
}

// The ranks' way leaves room for the switch's, and has the whole link when that has nothing to do.
void SplitSession::set_pace() {
  const auto divided = std::ranges::find_if(running_, [](const Tensor& each) { return each.is_divided; });
  if (divided == running_.end()) return;
  const bool is_shared = std::ranges::any_of(running_, [](const Tensor& each) { return !each.in_switch.is_over; });
  among_ranks_->pace(is_shared ? divided->share.pace_bytes_s : divided->share.link_bytes_s);
}

// --- Progress ---

Result<bool> SplitSession::move() {
  return among_ranks_->move();
}

Result<bool> SplitSession::pump(Nanoseconds now) {
  time_ = now;
  bool has_moved = false;
  while (start_next()) has_moved = true;
  const auto in_switch = in_switch_->pump(now);
  if (!in_switch) return in_switch;
  const auto among_ranks = among_ranks_->pump(now);
  if (!among_ranks) return among_ranks;
  has_moved = collect() || has_moved;
  while (start_next()) has_moved = true;  // a word may have come
  return has_moved || *in_switch || *among_ranks;
}

SplitSession::Tensor& SplitSession::running(Ticket ticket) {
  const auto found = std::ranges::find(running_, ticket, &Tensor::ticket);
  assert(found != running_.end());
  return *found;
}

// True if a part has ended.
bool SplitSession::collect() {
  const std::vector<Ticket> in_switch = in_switch_->take_finished(), among_ranks = among_ranks_->take_finished();
  if (in_switch.empty() && among_ranks.empty()) return false;
  for (const Ticket ticket : in_switch) {
    Tensor& tensor = running(ticket);
    end_part(tensor.in_switch, switch_free_at_);
    if (!waits_its_turn_ || !tensor.share.in_turn || tensor.among_ranks.is_over) continue;
    waits_its_turn_ = false;
    start_among_ranks(tensor);
  }
  for (const Ticket ticket : among_ranks) {
    if (ticket == kWordTicket) {
      share_ = share_in(word_);
      awaits_word_ = false;
    } else {
      end_part(running(ticket).among_ranks, ranks_free_at_);
    }
  }
  set_pace();
  for (Tensor& tensor : running_) {
    if (tensor.is_over()) finish(tensor);
  }
  std::erase_if(running_, [](const Tensor& tensor) { return tensor.is_over(); });
  return true;
}

void SplitSession::end_part(Part& part, Nanoseconds& way_free_at) {
  part.is_over = true;
  part.took = time_ - std::max(part.begun, way_free_at);
  way_free_at = time_;
}

void SplitSession::finish(Tensor& tensor) {
  if (tensor.is_divided && rank_ == 0) {
    estimate_.note(
        tensor.number, tensor.share,
        {static_cast<double>(encoded_bytes(tensor.request)), tensor.in_switch.took, tensor.among_ranks.took});
    report_->switch_bytes_s = estimate_.switch_bytes_s();
    report_->link_bytes_s = estimate_.link_bytes_s();
  }
  tensor.undo.finish(buffers_);
  finished_.push_back(tensor.ticket);
}

std::vector<Ticket> SplitSession::take_finished() {
  collect();
  return std::exchange(finished_, {});
}

bool SplitSession::is_idle() const {
  return waiting_.empty() && running_.empty() && in_switch_->is_idle() && among_ranks_->is_idle();
}

// --- The end ---

std::vector<Ticket> SplitSession::abort(const Error& error, Nanoseconds now) {
  in_switch_->abort(error, now);
  among_ranks_->abort(error, now);
  std::vector<Ticket> tickets;
  for (Tensor& tensor : running_) {
    tickets.push_back(tensor.ticket);
    tensor.undo.put_back();
  }
  for (const Tensor& tensor : waiting_) tickets.push_back(tensor.ticket);
  running_.clear();
  waiting_.clear();
  return tickets;
}

bool SplitSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  time_ = now;
  if (awaits_word_ && !error && running_.empty() && waiting_.empty()) {  // about a tensor that will not come
    const auto goes_on = among_ranks_->pump(now);
    collect();
    if (goes_on && awaits_word_) return false;
  }
  const bool has_left_switch = in_switch_->leave(error, now);
  const bool has_left_ranks = among_ranks_->leave(error, now);
  return has_left_switch && has_left_ranks;
}

// --- Waiting ---

Nanoseconds SplitSession::deadline() const {
  return std::min(in_switch_->deadline(), among_ranks_->deadline());
}

// The switch's come first and the ranks' last: each of the two knows its own by that place.
void SplitSession::add_polls(std::vector<pollfd>& polls) const {
  in_switch_->add_polls(polls);
  among_ranks_->add_polls(polls);
}

void SplitSession::on_wake(std::span<const pollfd> polls) {
  in_switch_->on_wake(polls);
  among_ranks_->on_wake(polls);
}

nlohmann::json SplitSession::counters() const {
  nlohmann::json counters = among_ranks_->counters();
  const std::uint64_t among_ranks = counters["reduced_elements"];
  counters.update(in_switch_->counters());
  counters["reduced_elements"] = among_ranks + counters["reduced_elements"].get<std::uint64_t>();
  counters["divided_tensors"] = divided_;
  counters["share_of_switch"] = report_->of_switch.load();
  counters["switch_bytes_s"] = report_->switch_bytes_s.load();
  counters["link_bytes_s"] = report_->link_bytes_s.load();
  return counters;
}

}  // namespace netfold::group

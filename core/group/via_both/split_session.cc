#include "group/via_both/split_session.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string_view>
#include <utility>

namespace netfold::group {
namespace {

constexpr std::string_view kSplit = "split", kInNetwork = "in-network";
constexpr int kPiecesMax = 2;  // that run at the same time: the later one fills the gaps of the first
constexpr Nanoseconds kLookForReturns = 200 * kMillisecond;
constexpr double kPortionsOfPiece = 16;  // if all of it goes through a switch

// Of a session at a switch: whether it says that the switch is lost, as far as the switch can know. That another rank
// is lost the other ranks know themselves.
bool is_of_switch(const Error& error) {
  return error.code == ErrorCode::kSwitchFailed || error.code == ErrorCode::kPeerFailed;
}

bool is_all_reduce(const CollectiveRequest& request) {
  return request.collective == schedule::Collective::kAllReduce;
}

// How many elements from `begin` on the next piece has. A short rest belongs to it.
std::size_t elements_of_piece(const CollectiveRequest& request, std::size_t begin, double piece_bytes) {
  const std::size_t rest = request.count - begin;
  const auto bytes = static_cast<double>(numbers::encoded_bytes({request.format, request.bfp}, request.count));
  const double units =
      piece_bytes / bytes * static_cast<double>(request.count) / static_cast<double>(numbers::kBlockMax);
  if (1.5 * units * static_cast<double>(numbers::kBlockMax) >= static_cast<double>(rest)) return rest;
  return std::max<std::size_t>(static_cast<std::size_t>(units), 1) * numbers::kBlockMax;
}

}  // namespace

SplitSession::SplitSession(PeerSessionOptions options, std::vector<std::unique_ptr<SwitchSession>> in_switches,
                           std::unique_ptr<PeerSession> among_ranks, std::shared_ptr<ShareReport> report,
                           std::unique_ptr<SwitchReturns> returns)
    : options_(options),
      count_(in_switches.size()),
      among_ranks_(std::move(among_ranks)),
      returns_(std::move(returns)),
      estimate_(options.world),
      one_way_(options.world),
      word_(count_, 2 * count_),
      losses_(options.rank, options.world),
      leaving_(options.rank, options.world),
      taking_back_(options.world),
      report_(std::move(report)) {
  for (auto& each : in_switches) {
    Switch& added = switches_.emplace_back();
    added.name = each->name();
    added.lives.emplace_back().session = std::move(each);
  }
  // Those for reduce-scatters are joined only where they are needed, as switches that are back: their first life is
  // over.
  for (std::size_t at = 0; at < count_; ++at) {
    switches_.push_back({.name = switches_[at].name, .is_wanted = false});
    switches_.back().lives.resize(2);
  }
  list_sessions();
}

void SplitSession::list_sessions() {
  sessions_.clear();
  for (const Switch& each : switches_) {
    for (const Life& life : each.lives) {
      if (life.session) sessions_.push_back(life.session.get());
    }
  }
  sessions_.push_back(among_ranks_.get());
}

// --- Requests ---

bool SplitSession::is_split(const CollectiveRequest& request) {
  return request.algorithm.name == kSplit;
}

std::size_t SplitSession::encoded_bytes(const CollectiveRequest& request) {
  return numbers::encoded_bytes({request.format, request.bfp}, request.count);
}

// Of all ranks' parts, on the wire.
std::size_t SplitSession::whole_bytes(const CollectiveRequest& request) const {
  return encoded_bytes(request) * static_cast<std::size_t>(is_all_reduce(request) ? 1 : options_.world);
}

// Room for a copy of what was handed over. It goes back to the pool with its last user.
std::shared_ptr<Undo> SplitSession::new_input(const CollectiveRequest& request) {
  std::shared_ptr<Undo> input(new Undo, [this](Undo* undo) {
    undo->finish(buffers_);
    delete undo;
  });
  // It is put back only where the result is written over it.
  input->start(const_cast<void*>(request.in), in_bytes(request, options_.world), buffers_);
  return input;
}

Result<std::unique_ptr<Prepared>> SplitSession::prepare(const CollectiveRequest& request) {
  if (!is_split(request) && request.algorithm.name != kInNetwork) return among_ranks_->prepare(request);
  const bool has_ways = is_split(request) && (request.collective == schedule::Collective::kReduceScatter ||
                                              request.collective == schedule::Collective::kAllGather);
  const auto valid = has_ways ? check_in_network(request, options_.world) : check_all_reduce(request);
  if (!valid) return tl::unexpected(valid.error());
  return nullptr;
}

void SplitSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) {
  waiting_.push_back(std::make_unique<Tensor>(ticket, request, std::move(prepared)));
}

// True if the first tensor that waits has begun, or the next piece of one. All ranks begin everything in the same
// order.
bool SplitSession::start_next() {
  if (measurement_ || losses_.awaits_words()) return false;
  if (const auto at = losses_.due()) {
    begin_again(*at);
    return true;
  }
  const bool goes_on = !running_.empty() && running_.back()->begun < running_.back()->request.count;
  if (!goes_on && waiting_.empty()) return false;
  const CollectiveRequest& request = goes_on ? running_.back()->request : waiting_.front()->request;
  const bool is_one_way = is_large_one_way(request);
  const bool is_divided = is_split(request) && is_all_reduce(request) && whole_bytes(request) >= kSplitBytesMin;
  // A word for a few of the others: it has time to come through the queues that they fill.
  const bool needs_word = is_divided || (is_one_way && one_way_needs_word());
  if (needs_word && awaits_word_) return false;
  if (is_divided && std::ranges::count_if(pieces_, &Piece::is_divided) >= kPiecesMax) return false;
  const Share& share = needs_word ? share_ : one_way_share_;
  if (is_one_way && share.is_measured && waits_for_other_way(request, share)) return false;
  const bool needs_rates = is_split(request) && is_all_reduce(request) && !has_measured_;
  if (needs_rates || (needs_word && !share_.is_measured)) {
    if (!pieces_.empty()) return false;
    begin_lives();
    measurement_.emplace(options_.world, count_, among_ranks_->shares_memory(), whole_bytes(request));
    measure_next();
    return true;
  }
  if (!goes_on) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  if (is_divided) {
    start_piece(*running_.back());
  } else if (is_one_way) {
    start_one_way(*running_.back());
  } else {
    start_whole(*running_.back());
  }
  return true;
}

SplitSession::Piece& SplitSession::new_piece(Tensor& tensor, bool is_divided) {
  ++tensor.pieces;
  pieces_.push_back({.ticket = next_ticket_++, .tensor = &tensor, .is_divided = is_divided});
  pieces_.back().in_switches.resize(switches_.size());
  return pieces_.back();
}

// A small tensor: rank 0 has said which sizes are.
bool SplitSession::is_faster_by_switch(const CollectiveRequest& request) const {
  if (!is_split(request) || !is_all_reduce(request)) return false;
  return ((std::uint64_t{small_to_switch_} >> std::bit_width(encoded_bytes(request))) & 1) != 0;
}

void SplitSession::start_whole(Tensor& tensor) {
  CollectiveRequest& request = tensor.request;
  tensor.begun = request.count;
  Piece& piece = new_piece(tensor, false);
  if (request.algorithm.name == kInNetwork || is_faster_by_switch(request)) {
    return start_whole_in_switch(small_switch_, piece);
  }
  piece.among_ranks = {request, false};
  if (!is_split(request)) {
    set_pace();
    return among_ranks_->submit(piece.ticket, request, std::move(tensor.prepared));
  }
  piece.among_ranks.request.algorithm.name =
      is_all_reduce(request)
          ? schedule::usual_in_rank_order(in_bytes(request, options_.world), options_.world,
                                          among_ranks_->shares_memory(), numbers::is_narrow(request.format))
          : schedule::kDirect;
  start_among_ranks(piece);
}

// A collective that goes through switches may have to be done again.
void SplitSession::keep_input(Tensor& tensor) {
  tensor.input = new_input(tensor.request);
  tensor.input->save(0, in_bytes(tensor.request, options_.world));
}

void SplitSession::start_whole_in_switch(std::size_t at, Piece& piece) {
  Tensor& tensor = *piece.tensor;
  keep_input(tensor);
  piece.in_switches[at] = {tensor.request, false};
  piece.in_switches[at].request.in = tensor.input->saved();
  start_in_switch(at, piece);
}

// Where elements of a tensor end that are divided by such shares of the whole: behind a block.
std::vector<std::size_t> SplitSession::cuts_of(std::size_t count, const std::vector<double>& shares, double whole) {
  std::vector<std::size_t> cuts = {0};  // between two of them is the part of each switch
  const std::size_t whole_units = count / numbers::kBlockMax;
  double so_far = 0;
  for (const double share : shares) {
    so_far += share;
    const double units = std::round(static_cast<double>(whole_units) * so_far / whole);
    cuts.push_back(so_far >= whole ? count : static_cast<std::size_t>(units) * numbers::kBlockMax);
  }
  return cuts;
}

// All parts write straight to where the sum belongs, and read a copy of what was handed over: one part may have ended
// when another fails, or is begun again.
void SplitSession::start_piece(Tensor& tensor) {
  Piece& piece = new_piece(tensor, true);
  decided_.reset();
  piece.share = take_share();
  piece.number = divided_++;
  piece.begun = time_;
  report_->of_switch = piece.share.of_all_switches();

  const CollectiveRequest& request = tensor.request;
  const std::size_t begin = tensor.begun, count = elements_of_piece(request, begin, piece.share.piece_bytes);
  tensor.begun += count;
  piece.is_at_an_end = (begin == 0 || tensor.begun == request.count) && 3 * count < request.count;
  const std::vector<std::size_t> cuts = cuts_of(count, piece.share.of_switches, 1);
  const bool is_only_among_ranks = count == request.count && cuts[count_] == 0;
  if (!is_only_among_ranks) {
    if (begin == 0) tensor.input = new_input(request);
    tensor.input->save(request.bytes_of(begin), request.bytes_of(count));
  }
  const void* const in = tensor.input ? tensor.input->saved() : request.in;
  const auto part_of = [&](std::size_t first, std::size_t part_count) {
    CollectiveRequest part = request;
    part.in = static_cast<const std::byte*>(in) + request.bytes_of(first);
    part.out = static_cast<std::byte*>(request.out) + request.bytes_of(first);
    part.count = part_count;
    part.algorithm.name = schedule::kDirect;
    part.whole = request.count;
    part.part_at = first;
    return part;
  };
  const auto part_between = [&](std::size_t from, std::size_t to) {
    if (from != to) piece.size_bytes += encoded_bytes(part_of(begin + from, to - from));
    return Part{part_of(begin + from, to - from), from == to};
  };
  for (std::size_t at = 0; at < count_; ++at) piece.in_switches[at] = part_between(cuts[at], cuts[at + 1]);
  piece.among_ranks = part_between(cuts[count_], count);
  for (std::size_t at = 0; at < count_; ++at) start_in_switch(at, piece);
  start_among_ranks(piece);
}

// On rank 0: by all ranks, in the life that the next word names.
bool SplitSession::is_joined(std::size_t at) const {
  const Switch& each = switches_[at];
  return each.lives[each.next].session && !losses_.is_lost(number({at, each.next}));
}

void SplitSession::start_in_switch(std::size_t at, Piece& piece) {
  Part& part = piece.in_switches[at];
  if (part.is_over) return;
  part.begun = time_;
  Life& life = switches_[at].current();
  const std::uint64_t number_of_part = life.begun_parts;
  const std::vector<CollectiveRequest> portions = portions_of(piece, part.request);
  life.begun_parts += portions.size();
  part.left = static_cast<int>(portions.size());
  KeptParts of_lost(number_of_part);
  KeptParts& parts = is_lost(at) ? of_lost : life.kept;
  for (const CollectiveRequest& each : portions) {
    parts.add({each, piece.tensor->input, piece.ticket, next_ticket_++});
  }
  take_back_begun({at, switches_[at].now}, parts, number_of_part);
  if (is_lost(at)) start_without_switch(at, number_of_part, parts, piece);
}

// A rank hands over a large part bit by bit.
std::vector<CollectiveRequest> SplitSession::portions_of(const Piece& piece, const CollectiveRequest& part) {
  if (!piece.is_divided) return {part};
  const double portion_bytes = piece.share.piece_bytes / kPortionsOfPiece;
  std::vector<CollectiveRequest> portions;
  for (std::size_t first = 0; first < part.count; first += portions.back().count) {
    CollectiveRequest& portion = portions.emplace_back(part);
    portion.in = static_cast<const std::byte*>(part.in) + part.bytes_of(first);
    portion.out = static_cast<std::byte*>(part.out) + part.bytes_of(first);
    portion.count = elements_of_piece(part, first, portion_bytes);
    portion.part_at = part.part_at + first;
  }
  return portions;
}

// True if a part was handed over.
bool SplitSession::hand_over_parts(std::size_t at) {
  Life& life = switches_[at].current();
  bool has_handed = false;
  while (life.session && !life.is_held && life.session->wants_more(life.handed_chunks)) {
    const KeptPart* const part = life.kept.waiting();
    if (part == nullptr) break;
    hand_to_switch(at, part->ticket, part->request);
    life.kept.hand_over(life.handed_chunks);
    has_handed = true;
  }
  return has_handed;
}

void SplitSession::hand_to_switch(std::size_t at, Ticket ticket, const CollectiveRequest& request) {
  Life& life = switches_[at].current();
  if (!life.session) return;  // it is lost, which is not yet settled
  life.handed_chunks += chunks_of(request, life.session->lease());
  life.session->submit(ticket, request, nullptr);
}

void SplitSession::start_among_ranks(Piece& piece) {
  if (piece.among_ranks.is_over) return;
  piece.among_ranks.begun = time_;
  expect_among_ranks(encoded_bytes(piece.among_ranks.request));
  set_pace();
  among_ranks_->submit_unprepared(piece.ticket, piece.among_ranks.request);
}

// The ranks' way leaves room for the switch's, and has the whole link when that has nothing to do. Algorithms in which
// a rank sends to one other at a time are not slowed down: the pace is that of direct, and spread over all ranks.
// Nothing changes before it must: a connection that was slowed down takes a round trip to become fast again.
void SplitSession::set_pace() {
  const auto is_of_one = [](const Piece& each) {
    return !each.is_divided && !each.among_ranks.is_over &&
           each.among_ranks.request.algorithm.name != schedule::kDirect;
  };
  if (std::ranges::any_of(pieces_, is_of_one)) return among_ranks_->pace(0);
  const auto large = std::ranges::find_if(pieces_, [](const Piece& each) { return each.share.is_measured; });
  if (large == pieces_.end()) return;
  const bool is_shared = std::ranges::any_of(pieces_, [](const Piece& each) { return !each.is_over_in_switches(); });
  // No faster than the link was measured: streams that meet in one port would fill its queue, and lose packets.
  among_ranks_->pace(is_shared ? large->share.pace_bytes_s : large->share.link_bytes_s);
}

// --- Progress ---

Result<bool> SplitSession::move() {
  return among_ranks_->move();
}

Result<bool> SplitSession::pump(Nanoseconds now) {
  time_ = now;
  note_handed_over();
  bool has_moved = take_returned();
  while (start_next()) has_moved = true;
  for (std::size_t at = 0; at < switches_.size(); ++at) {
    hand_over_parts(at);
    for (std::size_t life = 0; life < switches_[at].lives.size(); ++life) {
      SwitchSession* const session = switches_[at].lives[life].session.get();
      if (session == nullptr) continue;
      const auto moved = session->pump(now);
      if (!moved && is_for_the_ranks(*session, moved.error())) continue;
      if (!moved && !is_of_switch(moved.error())) return moved;
      if (!moved) lose({at, life}, moved.error());
      has_moved = has_moved || !moved || *moved;
    }
    has_moved = hand_over_parts(at) || has_moved;
  }
  say_who_is_missing();
  const auto moved = among_ranks_->pump(now);
  if (!moved) return moved;
  has_moved = has_moved || *moved;
  if (const auto goes_on = look_at_losses(); !goes_on) return tl::unexpected(goes_on.error());
  has_moved = collect() || has_moved;
  look_at_rates();
  answer_the_leaving();
  while (start_next()) has_moved = true;  // a word may have come
  return has_moved;
}

// A switch names the rank whose part is missing, which may itself wait for another one. The ranks know more.
bool SplitSession::is_for_the_ranks(const SwitchSession& session, const Error& error) const {
  return error.code == ErrorCode::kTimeout && error.rank != kNoRank && error.rank != options_.rank &&
         time_ - session.last_progress() <= options_.timeout + 2 * PeerSession::kCourtesy;
}

void SplitSession::say_who_is_missing() {
  std::optional<PeerSession::Elsewhere> missing;
  for (const Switch& each : switches_) {
    for (const Life& life : each.lives) {
      if (const auto rank = life.session ? life.session->missing_rank() : std::nullopt) {
        missing = {*rank, life.session->last_progress()};
      }
    }
  }
  among_ranks_->waits_elsewhere(missing);
}

SplitSession::Piece& SplitSession::running(Ticket ticket) {
  const auto found = std::ranges::find(pieces_, ticket, &Piece::ticket);
  assert(found != pieces_.end());
  return *found;
}

// True if a part has ended.
bool SplitSession::collect() {
  bool has_ended = false;
  for (std::size_t at = 0; at < switches_.size(); ++at) {
    if (!switches_[at].current().session) continue;
    for (const Ticket ticket : switches_[at].current().session->take_finished()) {
      has_ended = true;
      if (ticket == kMeasurementTicket) {
        end_of_measured();
      } else {
        end_in_switch(at, ticket);
      }
    }
  }
  for (const Ticket ticket : among_ranks_->take_finished()) {
    has_ended = true;
    if (ticket == kMeasurementTicket) {
      end_of_measured();
    } else if (ticket == kWordTicket) {
      take_word();
    } else if (const auto moved = std::ranges::find(moved_, ticket, &Moved::ticket); moved != moved_.end()) {
      end_portion(moved->piece, moved->at);
      moved_.erase(moved);
      among_ranks_->set_lost_time(0);
    } else if (!end_message(ticket)) {
      end_part(running(ticket).among_ranks, ranks_free_at_);
      among_ranks_->set_lost_time(0);
    }
  }
  if (!has_ended) return false;
  set_pace();
  for (const Piece& piece : pieces_) {
    if (piece.is_over()) finish(piece);
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.is_over(); });
  for (const auto& tensor : running_) {
    if (!tensor->is_over()) continue;
    if (options_.rank == 0) one_way_.end(tensor->ticket, time_);
    finished_.push_back(tensor->ticket);
  }
  std::erase_if(running_, [](const auto& tensor) { return tensor->is_over(); });
  return true;
}

void SplitSession::end_in_switch(std::size_t at, Ticket ticket) {
  Life& life = switches_[at].current();
  const Ticket ended = life.kept.end(ticket, life.session->finished_chunks(), life.session->lease().slots);
  Piece& piece = running(ended);
  if (piece.in_switches[at].left == 1) end_part(piece.in_switches[at], switches_[at].free_at);
  if (piece.is_taken_back) switches_[at].free_at = time_;
  end_portion(ended, at);
}

void SplitSession::end_portion(Ticket piece, std::size_t at) {
  Part& part = running(piece).in_switches[at];
  part.is_over = --part.left == 0;
}

void SplitSession::end_part(Part& part, Nanoseconds& way_free_at) {
  part.is_over = true;
  part.took = time_ - std::max(part.begun, way_free_at);
  way_free_at = time_;
}

std::vector<Ticket> SplitSession::take_finished() {
  collect();
  return std::exchange(finished_, {});
}

bool SplitSession::is_idle() const {
  return waiting_.empty() && running_.empty() && std::ranges::all_of(sessions_, &Session::is_idle);
}

// --- The end ---

std::vector<Ticket> SplitSession::abort(const Error& error, Nanoseconds now) {
  for (Session* const each : sessions_) each->abort(error, now);
  std::vector<Ticket> tickets;
  for (const auto& tensor : running_) {
    tickets.push_back(tensor->ticket);
    if (tensor->input && overwrites_input(tensor->request, options_.world)) tensor->input->put_back();
  }
  for (const auto& tensor : waiting_) tickets.push_back(tensor->ticket);
  pieces_.clear();
  running_.clear();
  waiting_.clear();
  moved_.clear();
  again_.clear();
  stays_until_ = 0;
  return tickets;
}

// A rank that was aborted, or closes in the middle of a collective, is of no use to others.
bool SplitSession::leave(const std::optional<Error>& error, Nanoseconds now) {
  time_ = now;
  if (!stays_until_ && !error && running_.empty() && waiting_.empty()) ask_to_leave();
  if (stays_until_.value_or(0) > 0) {
    if (pump(now) && is_needed()) return false;
    stays_until_ = 0;
  }
  bool has_left = true;
  for (Session* const each : sessions_) has_left = each->leave(error, now) && has_left;
  return has_left;
}

// --- Waiting ---

void SplitSession::set_timeout(Nanoseconds timeout) {
  options_.timeout = timeout;
  for (Session* const each : sessions_) each->set_timeout(timeout);
}

Nanoseconds SplitSession::deadline() const {
  Nanoseconds next = std::ranges::min(sessions_ | std::views::transform(&Session::deadline));
  if (stays_until_ && *stays_until_ > time_) next = std::min(next, *stays_until_);
  if (losses_.awaits_words()) {
    return std::min({next, stalled_since_ + options_.timeout, among_ranks_->silence_deadline()});
  }
  if (awaits_taking_back()) next = std::min({next, held_since_ + options_.timeout, among_ranks_->silence_deadline()});
  const bool awaits_return =
      std::ranges::any_of(switches_, [](const Switch& each) { return each.is_wanted && !each.lives.back().session; });
  return awaits_return ? std::min(next, time_ + kLookForReturns) : next;
}

// The ranks' come last: their session knows its bell by that place.
void SplitSession::add_polls(std::vector<pollfd>& polls) const {
  for (const Session* const each : sessions_) each->add_polls(polls);
}

void SplitSession::on_wake(std::span<const pollfd> polls) {
  for (Session* const each : sessions_) each->on_wake(polls);
}

void SplitSession::add_counters(nlohmann::json& sum, const nlohmann::json& more) {
  for (const auto& [name, value] : more.items()) {
    if (!sum.contains(name)) {
      sum[name] = value;
    } else if (name == "round_trip_s") {
      sum[name] = std::max(sum[name].get<double>(), value.get<double>());
    } else {
      sum[name] = sum[name].get<std::uint64_t>() + value.get<std::uint64_t>();
    }
  }
}

nlohmann::json SplitSession::counters() const {
  nlohmann::json counters = past_counters_;
  for (const Session* const each : sessions_) add_counters(counters, each->counters());
  counters["divided_tensors"] = divided_;
  counters["one_way_in_switch"] = one_way_in_switch_;
  counters["taken_back_parts"] = taken_back_;
  counters["lost_switches"] = std::ranges::count_if(switches_ | std::views::take(count_),
                                                    [](const Switch& each) { return !each.current().session; });
  counters["share_of_switch"] = report_->of_switch.load();
  counters["switch_bytes_s"] = report_->switch_bytes_s.load();
  counters["link_bytes_s"] = report_->link_bytes_s.load();
  return counters;
}

}  // namespace netfold::group

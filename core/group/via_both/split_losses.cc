// SplitSession: switches that are lost, those that are back, and a rank that leaves while others may lack a sum.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "group/via_both/split_session.h"

namespace netfold::group {
namespace {

// Notes to the other ranks: what has happened, at which switch, in which of its lives; of a loss, the word; of sums
// that a rank has, how many.
constexpr std::uint64_t kLost = 0, kJoined = 1, kHas = 2;
constexpr std::size_t kJoinedNumbers = 3, kHasNumbers = 4, kLostNumbers = 5;
constexpr int kPartBits = 40;  // of the number of a part that is done again; above them that of the lost switch

}  // namespace

// What others have heard, and what this rank waits for.
Result<void> SplitSession::look_at_losses() {
  for (const LifeLines::Note& note : among_ranks_->take_notes()) {
    const auto& numbers = note.numbers;
    if (numbers.size() < kJoinedNumbers || numbers[1] >= switches_.size()) continue;
    const SwitchLife of{numbers[1], numbers[2]};
    if (of.life >= switches_[of.at].lives.size()) continue;  // no rank says so: it hears of earlier losses first
    if (numbers[0] == kJoined) hear_joined(of);
    hear_of_taking_back(note, of);
    if (numbers[0] == kHas && numbers.size() == kHasNumbers && !losses_.is_lost(number(of))) {
      leaving_.hear(note.from, number(of), numbers[3]);
    }
    if (numbers[0] != kLost || numbers.size() != kLostNumbers) continue;
    lose(of, {ErrorCode::kSwitchFailed, fmt::format("rank {} does not reach it any more", note.from)});
    losses_.hear(note.from, number(of), {numbers[3], numbers[4]});
  }
  auto silent = losses_.waits_for();
  // All is over for a rank that has left. If another lacks a part of the switch, the sum among ranks names that rank.
  for (; silent && among_ranks_->has_left(*silent); silent = losses_.waits_for()) losses_.leave(*silent);
  if (silent && !is_idle()) return check_silent(*silent, stalled_since_, "a switch is lost, and");
  if (!awaits_taking_back()) return {};
  const auto asked = options_.rank == 0 ? taking_back_.waits_for() : std::optional(0);
  return asked ? check_silent(*asked, held_since_, "a switch has become slow, and") : Result<void>{};
}

// This rank waits for what another one says.
Result<void> SplitSession::check_silent(int rank, Nanoseconds since, const char* why) {
  if (auto known = among_ranks_->check_silence(time_ - since); !known) return known;
  if (time_ - since <= options_.timeout) return {};
  if (auto cut = among_ranks_->cut_off()) return tl::unexpected(std::move(*cut));
  return fail(
      ErrorCode::kTimeout,
      fmt::format("{} rank {} has not said within the timeout of {:g} s which parts of it must be summed again: "
                  "look there for a hang",
                  why, rank, to_seconds(options_.timeout)),
      rank);
}

void SplitSession::lose(SwitchLife of, const Error& why) {
  if (losses_.is_lost(number(of))) return;
  collect();  // what is over there
  Switch& lost = switches_[of.at];
  Life& life = lost.lives[of.life];
  const Losses::Word word{life.kept.first_not_over(), life.begun_parts};
  // The timeout counts from when nothing moved any more. But what follows has some time, too.
  stalled_since_ = time_;
  if (life.session && !life.session->is_idle()) {
    stalled_since_ = life.session->last_progress();
  } else if (!among_ranks_->is_idle()) {
    stalled_since_ = among_ranks_->last_progress();
  }
  stalled_since_ = std::max(stalled_since_, time_ - options_.timeout / 2);
  among_ranks_->set_lost_time(time_ - stalled_since_);
  if (life.session) {
    life.session->abort(why, time_);
    add_counters(past_counters_, life.session->counters());
    life.session.reset();
    list_sessions();
  }
  losses_.lose(number(of), word);
  life.is_held = false;
  if (taking_back_.asked() == of) taking_back_.forget();
  leaving_.forget(number(of));
  among_ranks_->say_note({kLost, of.at, of.life, word.first, word.begun});
  if (of.at < count_) {
    estimate_.lose(of.at);
    report({lost.name, why.message});
  }
  if (measurement_ && measurement_->at_switch() == of.at && lost.now == of.life) end_of_measured();
  lost.lives.emplace_back();
  if (returns_) returns_->ask({of.at, of.life + 1});
}

// The parts that this rank has begun already.
void SplitSession::begin_again(std::size_t lost) {
  const SwitchLife of{lost % switches_.size(), lost / switches_.size()};
  KeptParts& kept = switches_[of.at].lives[of.life].kept;
  do_all_again(of, losses_.first(lost), kept);
  kept.clear();
  losses_.begun_again(lost);
}

// From this number on. The ranks have begun those that they have taken back.
void SplitSession::do_all_again(SwitchLife of, std::uint64_t first, const KeptParts& parts) {
  for (const KeptPart& each : parts.from(first)) {
    if (!each.is_taken_back) do_again(of, first, each);
    ++first;
  }
}

void SplitSession::do_again(SwitchLife of, std::uint64_t part, const KeptPart& kept) {
  const std::uint64_t number = std::uint64_t{this->number(of)} << kPartBits | part;
  again_.push_back({of.at, std::make_unique<PartAgain>(kept, options_.rank, options_.world, number)});
  again_.back().part->begin(submit_message());
}

PartAgain::Submit SplitSession::submit_message() {
  return [this](const CollectiveRequest& message) {
    among_ranks_->submit(next_ticket_, message, nullptr);
    return next_ticket_++;
  };
}

// False if it is not a message of a part that is done again.
bool SplitSession::end_message(Ticket ticket) {
  const auto found =
      std::ranges::find_if(again_, [&](const Again& each) { return each.part->end(ticket, submit_message()); });
  if (found == again_.end()) return false;
  if (!found->part->is_over()) return true;
  if (found->part->piece() != KeptPart::kOver) end_portion(found->part->piece(), found->at);
  again_.erase(found);
  among_ranks_->set_lost_time(0);
  return true;
}

// A part that has begun with a switch of which all ranks know that it is lost.
void SplitSession::start_without_switch(std::size_t at, std::uint64_t first, KeptParts& parts, Piece& piece) {
  const CollectiveRequest& request = piece.in_switches[at].request;
  // Among the ranks no collective is of some elements of every rank's part.
  if (first < losses_.end(number(at)) || request.part_stride > 0) {
    return do_all_again({at, switches_[at].now}, first, parts);
  }
  piece.in_switches[at].left = 1;
  CollectiveRequest among_ranks = request;
  among_ranks.algorithm.name = schedule::kDirect;
  moved_.push_back({next_ticket_++, piece.ticket, at});
  among_ranks_->submit_unprepared(moved_.back().ticket, among_ranks);
}

// --- Switches that are back ---

// True if a switch is.
bool SplitSession::take_returned() {
  if (!returns_) return false;
  bool has_news = false;
  while (auto joined = returns_->take()) {
    const SwitchLife of = joined->of;
    if (losses_.is_lost(number(of))) continue;  // by another rank, meanwhile
    has_news = true;
    joined->session->set_timeout(options_.timeout);
    switches_[of.at].lives[of.life].session = std::move(joined->session);
    list_sessions();
    among_ranks_->say_note({kJoined, of.at, of.life});
    hear_joined(of);
  }
  return has_news;
}

void SplitSession::hear_joined(SwitchLife of) {
  Switch& back = switches_[of.at];
  if (++back.lives[of.life].joined_ranks < options_.world || losses_.is_lost(number(of))) return;
  if (of.at < count_) report({back.name, ""});
  if (options_.rank != 0) return;
  back.next = of.life;
  if (of.at < count_) estimate_.regain(of.at);
}

// With what begins now, the lives of the switches that rank 0 named for it begin too.
void SplitSession::begin_lives() {
  for (std::size_t at = 0; at < next_lives_.size(); ++at) {
    Switch& each = switches_[at];
    if (next_lives_[at] > each.now && next_lives_[at] < each.lives.size()) each.now = next_lives_[at];
  }
}

// --- A rank that leaves ---

void SplitSession::ask_to_leave() {
  stays_until_ = time_ + std::min(kStayMax, options_.timeout);
  for (std::size_t at = 0; at < switches_.size(); ++at) {
    const Life& life = switches_[at].current();
    if (life.session && life.begun_parts > 0) leaving_.ask(number(at), life.begun_parts);
  }
}

void SplitSession::answer_the_leaving() {
  if (!leaving_.has_questions()) return;
  for (std::size_t at = 0; at < switches_.size(); ++at) {
    const Switch& each = switches_[at];
    const auto parts = leaving_.answer(number(at), each.current().kept.first_not_over());
    if (parts) among_ranks_->say_note({kHas, at, each.now, *parts});
  }
}

// By other ranks: for a word about a tensor that will not come, for a part of a lost switch, or for what they lack if
// their switch is lost now.
bool SplitSession::is_needed() const {
  if (awaits_word_ || !again_.empty()) return true;  // for a timeout at most
  if (time_ >= *stays_until_) return false;
  const auto has_left = [this](int rank) { return among_ranks_->has_left(rank); };
  return losses_.awaits_words() || losses_.due() || !leaving_.have_all(has_left);
}

void SplitSession::report(ShareReport::News news) {
  const std::lock_guard lock(report_->mutex);
  report_->news.push_back(std::move(news));
}

}  // namespace netfold::group

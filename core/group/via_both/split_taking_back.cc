// SplitSession: portions that ranks take back from a switch that has become slow (taking_back.h).
#include <algorithm>
#include <utility>

#include "group/via_both/split_session.h"

namespace netfold::group {
namespace {

// Notes to the other ranks, beside those of split_losses.cc: rank 0 asks all to hand nothing more to a switch; how many
// parts a rank has handed over; which parts the ranks take back, from and to, and their pace (bytes/s, 0: as before).
constexpr std::uint64_t kHold = 3, kHeld = 4, kTakenBack = 5;
constexpr std::size_t kHeldNumbers = 4, kTakenBackNumbers = 6;
constexpr Nanoseconds kRatePeriod = 2 * kMillisecond;
constexpr double kMuchSlower = 0.5;      // of what the switch was thought to take
constexpr double kLeastPace = 1.0 / 16;  // of the link

}  // namespace

bool SplitSession::awaits_taking_back() const {
  return std::ranges::any_of(switches_, [](const Switch& each) {
    return std::ranges::any_of(each.lives, [](const Life& life) { return life.is_held; });
  });
}

void SplitSession::hear_of_taking_back(const LifeLines::Note& note, SwitchLife of) {
  const auto& numbers = note.numbers;
  Life& life = switches_[of.at].lives[of.life];
  if (numbers[0] == kHold && life.session) {
    hold(of);
    among_ranks_->say_note_to(note.from, {kHeld, of.at, of.life, life.kept.first_waiting()});
  }
  if (numbers[0] == kHeld && numbers.size() == kHeldNumbers) {
    taking_back_.hear(note.from, of, numbers[3]);
    if (taking_back_.asked() && !taking_back_.waits_for()) say_taken_back();
  }
  if (numbers[0] != kTakenBack || numbers.size() != kTakenBackNumbers) return;
  life.is_held = false;
  take_back(of, life.kept, numbers[3], numbers[4]);
  if (numbers[4] > life.begun_parts) life.taken_back.emplace_back(numbers[3], numbers[4]);
  take_pace(static_cast<double>(numbers[5]));
}

void SplitSession::hold(SwitchLife of) {
  switches_[of.at].lives[of.life].is_held = true;
  held_since_ = time_;
}

// All ranks take the same parts back, and parts of one piece together.
void SplitSession::take_back(SwitchLife of, KeptParts& parts, std::uint64_t first, std::uint64_t end) {
  for (const KeptParts::TakenBack& each : parts.take_back(first, end)) {
    Piece& piece = running(each.part.piece);
    piece.is_taken_back = true;
    piece.in_switches[of.at].left -= each.parts - 1;
    taken_back_ += static_cast<std::uint64_t>(each.parts);
    expect_among_ranks(encoded_bytes(each.part.request));
    do_again(of, each.number, each.part);
  }
}

// Those that begin here after rank 0 has said so.
void SplitSession::take_back_begun(SwitchLife of, KeptParts& parts, std::uint64_t first) {
  Life& life = switches_[of.at].lives[of.life];
  for (const auto& [from, to] : life.taken_back) take_back(of, parts, std::max(from, first), to);
  std::erase_if(life.taken_back, [&](const auto& each) { return each.second <= life.begun_parts; });
}

// A piece that begins later has a word that says its pace.
void SplitSession::take_pace(double bytes_s) {
  if (bytes_s <= 0) return;
  for (Piece& each : pieces_) each.share.pace_bytes_s = bytes_s;
  set_pace();
}

// --- On rank 0 ---

void SplitSession::look_at_rates() {
  if (options_.rank != 0 || measurement_ || !estimate_.is_measured() || time_ < next_look_) return;
  next_look_ = time_ + kRatePeriod;
  for (std::size_t at = 0; at < count_; ++at) look_at_rate(at);
}

void SplitSession::look_at_rate(std::size_t at) {
  Life& life = switches_[at].current();
  if (!life.session) return;
  life.rate.look(time_, life.session->returned_chunks(), among_ranks_->received_from_all(),
                 life.handed_chunks > life.session->finished_chunks());
  const KeptPart* const waiting = life.kept.waiting();
  if (taking_back_.asked() || !life.rate.is_moving(time_) || waiting == nullptr || waiting->request.whole == 0) return;
  const Load load = load_of(at);
  if (2 * bytes_to_take_back(load) < static_cast<double>(encoded_bytes(waiting->request))) return;
  if (load.switch_bytes_s < kMuchSlower * estimate_.ways().switches[at].bytes_s) {
    estimate_.slow_down(at, load.switch_bytes_s);
  }
  const SwitchLife of{at, switches_[at].now};
  taking_back_.ask(of);
  taking_back_.hear(options_.rank, of, life.kept.first_waiting());
  hold(of);
  among_ranks_->say_note({kHold, of.at, of.life});
}

// All have answered.
void SplitSession::say_taken_back() {
  const SwitchLife of = *taking_back_.asked();
  Life& life = switches_[of.at].lives[of.life];
  const std::uint64_t first = taking_back_.first();
  const Load load = load_of(of.at);
  double left = bytes_to_take_back(load);
  std::uint64_t end = first;
  for (; end < life.kept.begun(); ++end) {
    const KeptPart& each = life.kept.at(end);
    if (each.is_taken_back) continue;
    const auto size_bytes = static_cast<double>(encoded_bytes(each.request));
    if (each.request.whole == 0 || left < size_bytes / 2) break;
    left -= size_bytes;
  }
  taking_back_.forget();
  life.is_held = false;
  const double pace = end > first ? load.ranks_bytes_s : 0;
  among_ranks_->say_note({kTakenBack, of.at, of.life, first, end, static_cast<std::uint64_t>(pace)});
  take_back(of, life.kept, first, end);
  take_pace(pace);
}

Load SplitSession::load_of(std::size_t at) {
  Life& life = switches_[at].current();
  const Ways& ways = estimate_.ways();
  const KeptPart* const waiting = life.kept.waiting();
  if (waiting == nullptr) return {};
  const double size_bytes = static_cast<double>(encoded_bytes(waiting->request));
  const double of_chunk = size_bytes / static_cast<double>(chunks_of(waiting->request, life.session->lease()));
  Load load{.received_each = sent_among_ranks(options_.world)};
  load.in_switch = static_cast<double>(life.handed_chunks - life.session->returned_chunks()) * of_chunk;
  for (const KeptPart& each : life.kept.from(life.kept.first_waiting())) {
    if (!each.is_taken_back) load.in_switch += static_cast<double>(encoded_bytes(each.request));
  }
  const double at_others = ways.switches_bytes_s() - ways.switches[at].bytes_s;
  const auto ranks_beside = [&](double switch_bytes_s) {
    return std::max(ways.link_bytes_s - at_others - switch_bytes_s, kLeastPace * ways.link_bytes_s);
  };
  load.switch_bytes_s = ways.switches[at].bytes_s;
  const double now_bytes_s =
      of_chunk * life.rate.chunks_s(ranks_beside(load.switch_bytes_s)).value_or(load.switch_bytes_s / of_chunk);
  if (now_bytes_s < kMuchSlower * load.switch_bytes_s) load.switch_bytes_s = now_bytes_s;
  load.ranks_bytes_s = ranks_beside(load.switch_bytes_s);
  const bool are_ranks_busy =
      !again_.empty() || std::ranges::any_of(pieces_, [](const Piece& each) { return !each.among_ranks.is_over; });
  const auto received = static_cast<double>(among_ranks_->received_from_all());
  load.among_ranks = are_ranks_busy ? std::max(ranks_due_ - received, 0.0) : 0;
  return load;
}

// So many bytes of tensors are to be summed among the ranks.
void SplitSession::expect_among_ranks(std::size_t size_bytes) {
  if (options_.rank != 0) return;
  const double received = sent_among_ranks(options_.world) * static_cast<double>(size_bytes);
  ranks_due_ = std::max(ranks_due_, static_cast<double>(among_ranks_->received_from_all())) + received;
}

}  // namespace netfold::group

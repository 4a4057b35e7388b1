// SplitSession: the rates of both ways, which rank 0 follows, and its words about the shares that follow from them.
#include <algorithm>
#include <cassert>
#include <vector>

#include "group/via_both/split_session.h"

namespace netfold::group {

void SplitSession::measure_next() {
  while (!measurement_->is_over() && measurement_->at_switch() && is_lost(*measurement_->at_switch())) {
    measurement_->begin(time_);
    measurement_->end(time_);
  }
  if (measurement_->is_over()) {
    if (options_.rank == 0) estimate_.measured(measurement_->ways());
    decided_.reset();
    return send_word();
  }
  among_ranks_->pace(0);
  const CollectiveRequest request = measurement_->begin(time_);
  if (const auto at = measurement_->at_switch()) return hand_to_switch(*at, kMeasurementTicket, request);
  among_ranks_->submit_unprepared(kMeasurementTicket, request);
}

void SplitSession::end_of_measured() {
  measurement_->end(time_);
  measure_next();
}

// What rank 0 has said about what begins now. Its word about what comes next leaves.
Share SplitSession::take_share() {
  begin_lives();
  const Share share = share_;
  small_to_switch_ = share.small_to_switch;
  small_switch_ = share.small_switch;
  if (share.joins_scatters) join_scatters();
  send_word();
  return share;
}

// About the large collective after this one, or the first after a measurement. Only a piece uses a share up.
void SplitSession::send_word() {
  assert(!awaits_word_);
  if (options_.rank == 0) {
    std::vector<std::size_t> lives;
    for (const Switch& each : switches_) lives.push_back(each.next);
    if (!decided_ || !estimate_.is_measured()) decided_ = estimate_.next();
    decided_->joins_scatters = one_way_.wants_switch() && estimate_.is_fast() && decided_->of_all_switches() > 0;
    decided_->one_ways_overlap = one_way_.overlaps();
    decided_->one_way_to_switch = decided_->joins_scatters && may_go_one_way(*decided_);
    word_.write(*decided_, lives);
  }
  awaits_word_ = true;
  CollectiveRequest request;
  request.in = request.out = word_.numbers().data();
  request.count = word_.numbers().size();
  request.type = numbers::ElementType::kInt32;
  request.format = numbers::Format::kInt32;
  request.collective = schedule::Collective::kBroadcast;
  request.algorithm.name = "binomial";
  among_ranks_->submit_unprepared(kWordTicket, request);
}

void SplitSession::take_word() {
  share_ = word_.share();
  next_lives_ = word_.lives();
  awaits_word_ = false;
  if (!measurement_) return;
  measurement_.reset();
  has_measured_ = true;
  small_to_switch_ = share_.small_to_switch;
  small_switch_ = share_.small_switch;
}

void SplitSession::finish(const Piece& piece) {
  --piece.tensor->pieces;
  if (!piece.is_divided || options_.rank != 0) return;
  ShareEstimate::Outcome outcome{.size_bytes = static_cast<double>(piece.size_bytes),
                                 .in_switches = {},
                                 .among_ranks = piece.among_ranks.took,
                                 .whole = time_ - std::max(piece.begun, free_at_),
                                 .is_at_an_end = piece.is_at_an_end};
  free_at_ = time_;
  for (std::size_t at = 0; at < count_; ++at) outcome.in_switches.push_back(piece.in_switches[at].took);
  // How long a part took of which the ranks took some back says nothing more.
  if (!piece.is_taken_back) estimate_.note(piece.number, piece.share, outcome);
  const Ways& ways = estimate_.ways();
  report_->switch_bytes_s = ways.switches_bytes_s();
  report_->link_bytes_s = ways.link_bytes_s;
  for (std::size_t at = 0; at < count_; ++at) {
    SwitchSession* const session = switches_[at].current().session.get();
    if (session == nullptr) continue;
    session->say_shared({piece.share.of_switches[at], ways.switches[at].bytes_s, ways.link_bytes_s});
  }
}

}  // namespace netfold::group

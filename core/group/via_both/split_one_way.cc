// SplitSession: large reduce-scatters and all-gathers, each of which takes one way.
#include <algorithm>
#include <ranges>
#include <utility>

#include "group/via_both/split_session.h"

namespace netfold::group {
namespace {

constexpr std::uint64_t kOneWaysOfWord = 4;  // reduce-scatters and all-gathers for which a word counts

bool is_scatter(const CollectiveRequest& request) {
  return request.collective == schedule::Collective::kReduceScatter;
}

}  // namespace

bool SplitSession::one_way_needs_word() const {
  return one_way_begun_ % kOneWaysOfWord == 0;
}

bool SplitSession::is_large_one_way(const CollectiveRequest& request) const {
  return is_split(request) && request.collective != schedule::Collective::kAllReduce &&
         whole_bytes(request) >= kSplitBytesMin;
}

// Rank 0 looks at how long callers wait for large reduce-scatters and all-gathers.
void SplitSession::note_handed_over() {
  if (options_.rank != 0) return;
  for (const auto& tensor : waiting_ | std::views::reverse) {
    if (std::exchange(tensor->is_noted, true)) break;
    if (!is_large_one_way(tensor->request)) continue;
    one_way_.hand_over(tensor->ticket, is_scatter(tensor->request), whole_bytes(tensor->request), time_);
  }
}

// Among the ranks, direct gives a reduce-scatter the bits of the switch. An all-gather by itself is faster by a ring.
// One beside a reduce-scatter is sent directly, too: then both pass each connection one after the other, at one pace.
// All ranks begin the same ones in the same order, so they choose alike.
const char* SplitSession::one_way_algorithm(const CollectiveRequest& request, const Share& share) const {
  return is_scatter(request) || (share.one_ways_overlap && was_scatter_) ? schedule::kDirect : schedule::kRing;
}

// Streams of direct, which start all at once, and those of a ring disturb each other.
bool SplitSession::waits_for_other_way(const CollectiveRequest& request, const Share& share) const {
  return !share.one_way_to_switch && std::ranges::any_of(pieces_, [&](const Piece& each) {
    return !each.among_ranks.is_over && is_large_one_way(each.tensor->request) &&
           each.among_ranks.request.algorithm.name != one_way_algorithm(request, share);
  });
}

// A large reduce-scatter or all-gather.
void SplitSession::start_one_way(Tensor& tensor) {
  const CollectiveRequest& request = tensor.request;
  tensor.begun = request.count;
  Piece& piece = new_piece(tensor, false);
  if (one_way_needs_word()) one_way_share_ = take_share();
  ++one_way_begun_;
  piece.share = one_way_share_;
  if (options_.rank == 0) one_way_.begin(tensor.ticket, piece.share.one_way_to_switch);
  const char* const algorithm = one_way_algorithm(request, piece.share);
  was_scatter_ = is_scatter(request);
  if (piece.share.one_way_to_switch) {
    ++one_way_in_switch_;
    return start_one_way_in_switches(piece);
  }
  piece.among_ranks = {request, false};
  piece.among_ranks.request.algorithm.name = algorithm;
  start_among_ranks(piece);
}

// Each switch has some of every rank's part, by what it takes.
void SplitSession::start_one_way_in_switches(Piece& piece) {
  const CollectiveRequest& request = piece.tensor->request;
  keep_input(*piece.tensor);
  const std::vector<std::size_t> cuts = cuts_of(request.count, piece.share.of_switches, piece.share.of_all_switches());
  const std::size_t first_job = is_scatter(request) ? count_ : 0;
  for (std::size_t at = 0; at < count_; ++at) {
    CollectiveRequest part = request;
    part.in = piece.tensor->input->saved() + request.bytes_of(cuts[at]);
    part.out = static_cast<std::byte*>(request.out) + request.bytes_of(cuts[at]);
    part.count = cuts[at + 1] - cuts[at];
    part.part_stride = request.count;
    piece.in_switches[first_job + at] = {part, part.count == 0};
    start_in_switch(first_job + at, piece);
  }
}

// --- The jobs for reduce-scatters ---

void SplitSession::join_scatters() {
  for (std::size_t at = count_; at < switches_.size() && returns_; ++at) {
    Switch& scatters = switches_[at];
    if (!std::exchange(scatters.is_wanted, true)) returns_->ask({at, scatters.lives.size() - 1});
  }
}

// On rank 0: both jobs are joined at all switches that get something.
bool SplitSession::may_go_one_way(const Share& share) const {
  for (std::size_t at = 0; at < count_; ++at) {
    if (share.of_switches[at] > 0 && !(is_joined(at) && is_joined(count_ + at))) return false;
  }
  return true;
}

}  // namespace netfold::group

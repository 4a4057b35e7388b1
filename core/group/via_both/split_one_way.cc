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

// Among the ranks a large reduce-scatter and a large all-gather run one after the other: streams of direct, which start
// all at once, and those of a ring disturb each other.
bool SplitSession::waits_for_other_way(const CollectiveRequest& request, const Share& share) const {
  return !share.one_way_to_switch && std::ranges::any_of(pieces_, [&](const Piece& each) {
    return !each.among_ranks.is_over && is_large_one_way(each.tensor->request) &&
           each.tensor->request.collective != request.collective;
  });
}

// A large reduce-scatter or all-gather. Among the ranks, direct gives a reduce-scatter the bits of the switch.
void SplitSession::start_one_way(Tensor& tensor) {
  const CollectiveRequest& request = tensor.request;
  tensor.begun = request.count;
  Piece& piece = new_piece(tensor, false);
  if (one_way_needs_word()) one_way_share_ = take_share();
  ++one_way_begun_;
  piece.share = one_way_share_;
  if (options_.rank == 0) one_way_.begin(tensor.ticket, piece.share.one_way_to_switch);
  if (piece.share.one_way_to_switch) {
    ++one_way_in_switch_;
    return start_whole_in_switch(is_scatter(request) ? scatters_at_ : 0, piece);
  }
  piece.among_ranks = {request, false};
  piece.among_ranks.request.algorithm.name = is_scatter(request) ? schedule::kDirect : schedule::kRing;
  start_among_ranks(piece);
}

}  // namespace netfold::group

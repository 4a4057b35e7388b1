// The parts of tensors that a rank has handed to one switch, with what it contributed: if the switch is lost, they are
// summed again among the ranks. A part that is over for this rank may not be over for another, so it is kept until it
// must be: no rank is further ahead of another than the switch has slots, in chunks. Pure.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <ranges>

#include "group/collective_request.h"
#include "group/session.h"
#include "group/undo.h"

namespace netfold::group {

struct KeptPart {
  CollectiveRequest request;  // reads `input`
  std::shared_ptr<const Undo> input;
  Ticket piece;                 // that it belongs to; kOver: it is over
  std::uint64_t end_chunk = 0;  // of the stream of chunks to this switch

  static constexpr Ticket kOver = 0;
};

class KeptParts {
 public:
  void add(KeptPart part) { parts_.push_back(std::move(part)); }
  // The part is over. So many chunks of the stream are, from its beginning, and a rank is at most `slots` ahead.
  void end(Ticket piece, std::uint64_t chunks_over, std::uint64_t slots) {
    for (KeptPart& each : parts_) {
      if (each.piece == piece) each.piece = KeptPart::kOver;
    }
    while (!parts_.empty() && parts_.front().end_chunk + slots <= chunks_over) {
      parts_.pop_front();
      ++forgotten_;
    }
  }
  // Parts count from 0.
  std::uint64_t first_not_over() const {
    const auto found = std::ranges::find_if(parts_, [](const KeptPart& each) { return each.piece != KeptPart::kOver; });
    return forgotten_ + static_cast<std::uint64_t>(found - parts_.begin());
  }
  // Those from this number on; none of them may have been forgotten.
  auto from(std::uint64_t number) const {
    assert(number >= forgotten_);
    return parts_ | std::views::drop(static_cast<std::ptrdiff_t>(number - forgotten_));
  }
  // No more are added.
  void clear() { parts_.clear(); }

 private:
  std::deque<KeptPart> parts_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace netfold::group

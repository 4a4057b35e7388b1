// The parts of tensors that are meant for one switch, with what this rank contributes. A large part is cut into
// portions, and a rank hands over no more of them than the switch soon takes, so that the ranks can take the rest back
// (taking_back.h). The parts are kept: if the switch is lost, they are summed again among the ranks. A part that
// is over for this rank may not be over for another, so it is kept until it must be: no rank is further ahead of
// another than the switch has slots, in chunks. Pure.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <ranges>
#include <utility>
#include <vector>

#include "group/collective_request.h"
#include "group/session.h"
#include "group/undo.h"

namespace netfold::group {

struct KeptPart {
  CollectiveRequest request;  // reads `input`
  std::shared_ptr<const Undo> input;
  Ticket piece;                      // that it belongs to; kOver: it is over, or the ranks have taken it back
  Ticket ticket = 0;                 // at the session of the switch
  std::uint64_t end_chunk = kWaits;  // of the stream of chunks to this switch
  bool is_taken_back = false;

  static constexpr Ticket kOver = 0;
  static constexpr std::uint64_t kWaits = UINT64_MAX;  // it was not handed over yet
};

// Parts count from 0, alike on all ranks.
class KeptParts {
 public:
  explicit KeptParts(std::uint64_t first = 0) : forgotten_(first) {}

  void add(KeptPart part) { parts_.push_back(std::move(part)); }
  // The next one to hand over, and then where it ends in the stream; null: none waits.
  const KeptPart* waiting() {
    while (waits_from_ < parts_.size() && parts_[waits_from_].is_taken_back) {
      parts_[waits_from_++].end_chunk = handed_chunks_;
    }
    return waits_from_ < parts_.size() ? &parts_[waits_from_] : nullptr;
  }
  void hand_over(std::uint64_t end_chunk) { parts_[waits_from_++].end_chunk = handed_chunks_ = end_chunk; }
  // This one and later ones were not handed over.
  std::uint64_t first_waiting() const { return forgotten_ + waits_from_; }
  std::uint64_t begun() const { return forgotten_ + parts_.size(); }
  const KeptPart& at(std::uint64_t number) const { return parts_[static_cast<std::size_t>(number - forgotten_)]; }

  struct TakenBack {
    std::uint64_t number;  // of the first part
    KeptPart part;         // several parts of one piece, that follow each other
    int parts;
  };
  // Those of these parts that are here are for the ranks.
  std::vector<TakenBack> take_back(std::uint64_t first, std::uint64_t end) {
    std::vector<TakenBack> taken;
    bool follows = false;
    for (std::uint64_t number = std::max(first, forgotten_); number < std::min(end, begun()); ++number) {
      KeptPart& part = parts_[static_cast<std::size_t>(number - forgotten_)];
      if (part.is_taken_back) {
        follows = false;
        continue;
      }
      assert(part.end_chunk == KeptPart::kWaits);
      if (follows && taken.back().part.piece == part.piece) {
        taken.back().part.request.count += part.request.count;
        ++taken.back().parts;
      } else {
        taken.push_back({number, part, 1});
      }
      follows = true;
      part.is_taken_back = true;
      part.piece = KeptPart::kOver;
    }
    return taken;
  }

  // A part is over, of which the ticket at the session is known: the piece that it belongs to. So many chunks of the
  // stream are over, from its beginning, and a rank is at most `slots` ahead.
  Ticket end(Ticket ticket, std::uint64_t chunks_over, std::uint64_t slots) {
    const auto ended = std::ranges::find(parts_, ticket, &KeptPart::ticket);
    assert(ended != parts_.end());
    const Ticket piece = std::exchange(ended->piece, KeptPart::kOver);
    while (waits_from_ > 0 && parts_.front().end_chunk + slots <= chunks_over) {
      parts_.pop_front();
      ++forgotten_;
      --waits_from_;
    }
    return piece;
  }
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
  void clear() {
    parts_.clear();
    waits_from_ = 0;
  }

 private:
  std::deque<KeptPart> parts_;
  std::uint64_t forgotten_;
  std::size_t waits_from_ = 0;       // the place of the first one that was not handed over
  std::uint64_t handed_chunks_ = 0;  // where the last one that was ends
};

}  // namespace netfold::group

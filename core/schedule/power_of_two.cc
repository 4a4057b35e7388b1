#include <bit>

#include "schedule/algorithms.h"

namespace netfold::schedule {

PowerOfTwo::PowerOfTwo(const Team& team, int own_place)
    : ranks_(&team.ranks), size_(static_cast<int>(std::bit_floor(static_cast<unsigned>(team.size())))) {
  neighbours_ = team.size() - size_;
  place_ = own_place < 2 * neighbours_ ? own_place / 2 : own_place - neighbours_;
  is_extra_ = own_place < 2 * neighbours_ && own_place % 2 == 1;
}

PowerOfTwo::PowerOfTwo(const std::vector<int>& ranks, const std::vector<int>& extras, int own_place, bool is_extra)
    : ranks_(&ranks), extras_(&extras), size_(static_cast<int>(ranks.size())), place_(own_place), is_extra_(is_extra) {}

int PowerOfTwo::rank_at(int inner) const {
  return (*ranks_)[static_cast<std::size_t>(inner < neighbours_ ? 2 * inner : inner + neighbours_)];
}

std::optional<int> PowerOfTwo::extra_at(int inner) const {
  if (extras_ != nullptr) {
    const int extra = (*extras_)[static_cast<std::size_t>(inner)];
    return extra < 0 ? std::nullopt : std::optional(extra);
  }
  if (inner >= neighbours_) return std::nullopt;
  return (*ranks_)[static_cast<std::size_t>(2 * inner + 1)];
}

void hand_over(Steps& steps, const PowerOfTwo& inner, const std::vector<Segment>& elements, Action action) {
  Step step;
  if (inner.is_extra()) {
    add_transfers(step, Action::kSend, inner.rank_at(inner.place()), elements);
  } else if (const auto extra = inner.extra_at(inner.place())) {
    add_transfers(step, action, *extra, elements);
  }
  add_step(steps, std::move(step));
}

void hand_back(Steps& steps, const PowerOfTwo& inner, const std::vector<Segment>& elements) {
  Step step;
  if (inner.is_extra()) {
    add_transfers(step, Action::kStore, inner.rank_at(inner.place()), elements);
  } else if (const auto extra = inner.extra_at(inner.place())) {
    add_transfers(step, Action::kSend, *extra, elements);
  }
  add_step(steps, std::move(step));
}

}  // namespace netfold::schedule

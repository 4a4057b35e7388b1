#include "group/via_both/losses.h"

#include <algorithm>

namespace netfold::group {

void Losses::hear(int rank, std::size_t at, const Word& word) {
  while (states_.size() <= at) states_.emplace_back().words.resize(world_);
  auto& heard = states_[at].words[static_cast<std::size_t>(rank)];
  if (!heard) heard = word;
}

void Losses::leave(int rank) {
  for (std::size_t at = 0; at < states_.size(); ++at) {
    if (is_open(states_[at])) hear(rank, at, {.first = UINT64_MAX, .begun = 0});
  }
}

std::optional<int> Losses::waits_for() const {
  std::optional<int> lowest;
  for (const State& each : states_) {
    if (!is_open(each)) continue;
    const auto silent = std::ranges::find_if(each.words, [](const auto& word) { return !word; });
    if (silent == each.words.end()) continue;
    const int rank = static_cast<int>(silent - each.words.begin());
    lowest = std::min(lowest.value_or(rank), rank);
  }
  return lowest;
}

std::optional<std::size_t> Losses::due() const {
  for (std::size_t at = 0; at < states_.size(); ++at) {
    const State& each = states_[at];
    if (is_open(each) && std::ranges::all_of(each.words, [](const auto& word) { return word.has_value(); })) return at;
  }
  return std::nullopt;
}

std::uint64_t Losses::first(std::size_t at) const {
  std::uint64_t first = UINT64_MAX;
  for (const auto& word : states_[at].words) first = std::min(first, word->first);
  return first;
}

std::uint64_t Losses::end(std::size_t at) const {
  std::uint64_t end = 0;
  for (const auto& word : states_[at].words) end = std::max(end, word->begun);
  return end;
}

}  // namespace netfold::group

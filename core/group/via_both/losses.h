// What the ranks say to each other when a switch is lost: one that cannot be reached any more, by one rank or by all.
// Its parts are then summed again among the ranks. Pure.
//
// Ranks begin everything in the same order, and count it. When a rank learns that a switch is lost, by itself or from
// another, it does without it from then on. It tells all others how much it has begun, and the first part at the switch
// that is not over for it, and begins nothing new until all have said theirs. Then each goes on up to what the rank
// that was furthest had begun. There all of them begin the same parts again: from the first one that any rank lacks.
//
// More than one switch may be lost at a time. If a rank has spoken of several, it waits for what all others say about
// all of them; of those that are due at the same place it takes the first in the list. So all take the same order.
//
// A switch that is back begins another life, as if it were another switch: its lives have numbers of their own here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace netfold::group {

class Losses {
 public:
  struct Word {
    std::uint64_t begun = 0;  // by this rank, of everything
    std::uint64_t first = 0;  // number of the first part at the switch that is not over for this rank
  };

  Losses(int rank, int world) : rank_(rank), world_(static_cast<std::size_t>(world)) {}

  void lose(std::size_t at, const Word& word) { hear(rank_, at, word); }  // once: this rank's own word
  void hear(int rank, std::size_t at, const Word& word);
  // It needs nothing any more.
  void leave(int rank);
  bool is_lost(std::size_t at) const { return at < states_.size() && has_spoken(states_[at]); }

  // Some rank has not said yet how far it is.
  bool awaits_words() const { return waits_for().has_value(); }
  std::optional<int> waits_for() const;  // the lowest such rank
  // Some parts are still to be begun again.
  bool is_open() const;
  // The switch whose parts are to be begun again now that so much was begun.
  std::optional<std::size_t> due(std::uint64_t begun) const;
  std::uint64_t first(std::size_t at) const;  // the first of those parts; all ranks have spoken
  void begun_again(std::size_t at) { states_[at].is_begun_again = true; }
  bool is_begun_again(std::size_t at) const { return at < states_.size() && states_[at].is_begun_again; }

 private:
  struct State {
    std::vector<std::optional<Word>> words;  // by rank
    bool is_begun_again = false;
  };
  bool has_spoken(const State& state) const { return state.words[static_cast<std::size_t>(rank_)].has_value(); }
  bool is_open(const State& state) const { return has_spoken(state) && !state.is_begun_again; }

  int rank_;
  std::size_t world_;
  std::vector<State> states_;  // by switch
};

}  // namespace netfold::group

// What the ranks say to each other when a switch is lost: one that cannot be reached any more, by one rank or by all.
// Its parts are then summed again among the ranks. Pure.
//
// Ranks hand the same parts to a switch in the same order, and count them. When a rank learns that a switch is lost, by
// itself or from another, it does without it from then on. It tells all others which of its parts is the first that is
// not over for it, and how many it has begun, and begins nothing new until all have said theirs. Then all do the same
// parts again (part_again.h): from the first one that any rank lacks, up to the last one that any rank has begun. What
// begins later begins on all ranks when they know of the loss.
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
    std::uint64_t first = 0;  // number of the first part at the switch that is not over for this rank
    std::uint64_t begun = 0;  // parts there, by this rank
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
  // A switch whose parts are to be begun again now: all ranks have spoken.
  std::optional<std::size_t> due() const;
  // Which parts: from the first one, and not those from the end on. All ranks have spoken.
  std::uint64_t first(std::size_t at) const;
  std::uint64_t end(std::size_t at) const;
  void begun_again(std::size_t at) { states_[at].is_begun_again = true; }

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

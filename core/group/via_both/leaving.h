// What the ranks say to each other when one wants to leave: whether all have the sums that it has. One that lacks a sum
// needs this rank if the switch is lost before the sum comes (part_again.h). Pure.
//
// Ranks hand the same parts to a switch in the same order, and count them. A rank that wants to leave says how many it
// has there. Each of the others says the same number as soon as it has as many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace netfold::group {

class Leaving {
 public:
  Leaving(int rank, int world) : rank_(rank), world_(static_cast<std::size_t>(world)) {}

  // This rank wants to leave, and so many parts at a switch are over for it. Switches are numbered as Losses does.
  void ask(std::size_t at, std::uint64_t parts) { hear(rank_, at, parts); }
  void hear(int rank, std::size_t at, std::uint64_t parts);
  void forget(std::size_t at) { switches_.erase(at); }  // it is lost

  bool has_questions() const { return !switches_.empty(); }
  // What to tell all others now, each answer once: so many parts there are over for this rank.
  std::optional<std::uint64_t> answer(std::size_t at, std::uint64_t parts_over);
  // All others have what was asked about, or need nothing any more.
  bool have_all(const std::function<bool(int rank)>& has_left) const;

 private:
  struct Switch {
    std::vector<std::uint64_t> parts;  // by rank, as far as it has said
    std::uint64_t asked = 0, answered = 0;
  };

  int rank_;
  std::size_t world_;
  std::map<std::size_t, Switch> switches_;  // about which a rank has asked
};

}  // namespace netfold::group

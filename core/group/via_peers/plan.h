// A schedule made ready to run on one rank: what each transfer must wait for, where its elements lie, and what the
// agreement rule asks of it. Pure, and the same for every all-reduce of one shape, so plans are kept.
//
// Where elements lie. `out` is written as sums come in; until an element is written its value is still in `in`.
//
// Agreement: all ranks end with the same bits though some formats round. Two rules give that (formats that do not round
// need neither):
//   - a rank that sends elements which it folds further, or which are a result as they are (the root's in a broadcast),
//     takes over what it sent, decoded;
//   - a rank that folds elements for the last time holds their sum, and rounds it to the wire at once; from there on
//     it is only copied, and encoding it again gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace netfold::group {

// Elements up to `end` (from the piece before, or the transfer's start) that are treated alike.
struct Piece {
  std::size_t end;
  bool is_fresh;  // not written yet: their value is in `in`, and in place it must be saved before it is written
  bool keeps;     // send: the rank takes over what it sent
  bool finishes;  // fold: this gives the sum
};

struct PlannedTransfer {
  schedule::Action action;
  int peer;
  std::size_t offset, count;             // a count of 0: the all-reduce's terms are compared, nothing else
  std::vector<Piece> pieces;             // cover the transfer in order
  std::vector<std::uint32_t> waits_for;  // transfers that it may not overtake, element by element
  std::vector<std::uint32_t> follows;    // transfers that must have ended before it begins, and its header is sent
  // Of a send that follows others: the transfer by which the peer answers. Its header says that the peer is ready too.
  std::optional<std::uint32_t> answer = std::nullopt;

  std::size_t end() const { return offset + count; }
};

struct Plan {
  std::vector<PlannedTransfer> transfers;    // in the order of the schedule
  std::vector<std::uint32_t> together;       // in rank order: the folds, all of one segment, which move at once
  std::vector<schedule::Segment> untouched;  // of the result, but never written: it is what `in` holds
  // Whether elements have the same place on all ranks. If not, their headers do not say it.
  bool has_common_places = true;
};

// `result`: what the rank must end with. `rounds`: whether the format that travels is narrower than what is folded.
// Besides the schedule's transfers each rank sends its terms to the next rank, so that ranks that disagree notice even
// if they have nothing else to say to each other.
//
// `in_turns`: a swap begins when the one before has ended, at both partners. Over a network all connections of a rank
// share its wire. A swap that took its share of it early would hold up the one before, and all ranks that wait for
// that.
//
// `in_rank_order`: folds wait for each other, so that all ranks' elements are summed at once. A rank folds one segment.
struct PlanRules {
  bool rounds = false, in_turns = false, in_rank_order = false;
};
// Of schedule::exchange(): every transfer may move at once, and nothing is folded.
Plan make_exchange_plan(const schedule::Steps& steps, int world, int rank);
Plan make_plan(const schedule::Steps& steps, int world, int rank, std::size_t count, schedule::Segment result,
               PlanRules rules);

}  // namespace netfold::group

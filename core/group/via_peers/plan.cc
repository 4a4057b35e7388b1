#include "group/via_peers/plan.h"

#include <algorithm>
#include <cassert>

namespace netfold::group {
namespace {

using schedule::Action;

enum class Next : std::uint8_t { kNothing, kFold, kStore };

// The buffer cut wherever a transfer begins or ends: each interval is treated alike as a whole.
class Intervals {
 public:
  Intervals(const schedule::Steps& steps, std::size_t count, schedule::Segment result)
      : cuts_{0, count, result.offset, result.offset + result.count} {
    for (const auto& step : steps) {
      for (const auto& t : step) cuts_.insert(cuts_.end(), {t.offset, t.offset + t.count});
    }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  }
  std::size_t size() const { return cuts_.size() - 1; }
  std::size_t begin(std::size_t i) const { return cuts_[i]; }
  std::size_t end(std::size_t i) const { return cuts_[i + 1]; }
  std::size_t at(std::size_t offset) const {
    return static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), offset) - cuts_.begin());
  }
  template <class Visit>
  void each(const schedule::Transfer& t, Visit visit) const {
    for (std::size_t i = at(t.offset); t.count > 0 && i < size() && begin(i) < t.offset + t.count; ++i) visit(i);
  }

 private:
  std::vector<std::size_t> cuts_;
};

void append(std::vector<Piece>& pieces, Piece piece) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.is_fresh == piece.is_fresh && last.keeps == piece.keeps && last.finishes == piece.finishes) {
      last.end = piece.end;
      return;
    }
  }
  pieces.push_back(piece);
}

bool overlap(const PlannedTransfer& a, const PlannedTransfer& b) {
  return a.offset < b.end() && b.offset < a.end();
}

bool writes(const PlannedTransfer& t) {
  return t.action != Action::kSend || std::any_of(t.pieces.begin(), t.pieces.end(), [](auto& p) { return p.keeps; });
}

// The next action on each interval of each transfer, looking back from the end: [step][transfer][interval of it].
using NextUses = std::vector<std::vector<std::vector<Next>>>;

NextUses next_uses(const schedule::Steps& steps, const Intervals& intervals) {
  NextUses uses(steps.size());
  std::vector<Next> next(intervals.size(), Next::kNothing);
  for (std::size_t s = steps.size(); s-- > 0;) {
    uses[s].resize(steps[s].size());
    const auto note = [&](bool sends) {
      for (std::size_t i = 0; i < steps[s].size(); ++i) {
        const auto& t = steps[s][i];
        if ((t.action == Action::kSend) != sends) continue;
        intervals.each(t, [&](std::size_t at) { uses[s][i].push_back(next[at]); });
      }
    };
    note(false);
    for (const auto& t : steps[s]) {
      if (t.action == Action::kSend) continue;
      intervals.each(t, [&](std::size_t at) { next[at] = t.action == Action::kFold ? Next::kFold : Next::kStore; });
    }
    note(true);  // what is received in the same step comes after
  }
  return uses;
}

// Every transfer waits for those before it that touch the same elements, unless both only read.
void find_waits(std::vector<PlannedTransfer>& transfers, const std::vector<std::size_t>& step_of, bool folds_at_once) {
  for (std::uint32_t i = 0; i < transfers.size(); ++i) {
    for (std::uint32_t j = 0; j < transfers.size() && step_of[j] <= step_of[i]; ++j) {
      const bool is_before =
          step_of[j] < step_of[i] || (transfers[j].action == Action::kSend && transfers[i].action != Action::kSend);
      if (i == j || !is_before || !overlap(transfers[i], transfers[j])) continue;
      if (folds_at_once && transfers[i].action == Action::kFold && transfers[j].action == Action::kFold) continue;
      if (writes(transfers[i]) || writes(transfers[j])) transfers[i].waits_for.push_back(j);
    }
  }
}

std::vector<std::uint32_t> folds_of(const std::vector<PlannedTransfer>& transfers) {
  std::vector<std::uint32_t> folds;
  for (std::uint32_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].action != Action::kFold) continue;
    folds.push_back(i);
    assert(transfers[i].offset == transfers[folds.front()].offset);
    assert(transfers[i].count == transfers[folds.front()].count);
  }
  return folds;
}

bool is_swap(const schedule::Step& step) {
  const auto sends = [](const schedule::Transfer& t) { return t.action == Action::kSend; };
  return std::ranges::any_of(step, sends) && !std::ranges::all_of(step, sends);
}

void take_turns(std::vector<PlannedTransfer>& transfers, const std::vector<std::size_t>& step_of,
                const schedule::Steps& steps) {
  for (std::uint32_t i = 0; i < transfers.size(); ++i) {
    const std::size_t step = step_of[i];
    if (step == 0 || !is_swap(steps[step]) || !is_swap(steps[step - 1])) continue;
    for (std::uint32_t j = 0; j < i; ++j) {
      if (step_of[j] == step - 1 && transfers[j].count > 0) transfers[i].follows.push_back(j);
    }
    // The first of them: the peer says the headers of others only when what is before them has left.
    for (std::uint32_t j = i + 1; j < transfers.size() && step_of[j] == step && !transfers[i].answer; ++j) {
      const bool is_answer = transfers[i].action == Action::kSend && transfers[j].action != Action::kSend;
      if (is_answer && transfers[j].peer == transfers[i].peer) transfers[i].answer = j;
    }
  }
}

// Each rank sends its terms to the next.
void compare_terms(Plan& plan, int world, int rank) {
  if (world < 2) return;
  plan.transfers.push_back({Action::kSend, (rank + 1) % world, 0, 0, {}, {}, {}});
  plan.transfers.push_back({Action::kStore, (rank + world - 1) % world, 0, 0, {}, {}, {}});
}

}  // namespace

Plan make_exchange_plan(const schedule::Steps& steps, int world, int rank) {
  Plan plan;
  plan.has_common_places = false;
  compare_terms(plan, world, rank);
  for (const auto& step : steps) {
    for (const auto& t : step) {
      plan.transfers.push_back(
          {t.action, t.peer, t.offset, t.count, {{t.offset + t.count, true, false, false}}, {}, {}});
    }
  }
  return plan;
}

Plan make_plan(const schedule::Steps& steps, int world, int rank, std::size_t count, schedule::Segment result,
               PlanRules rules) {
  const Intervals intervals(steps, count, result);
  const auto is_result = [&](std::size_t at) {
    return intervals.begin(at) >= result.offset && intervals.end(at) <= result.offset + result.count;
  };
  const NextUses uses = next_uses(steps, intervals);
  Plan plan;
  std::vector<std::size_t> step_of;
  compare_terms(plan, world, rank);
  step_of.resize(plan.transfers.size());
  std::vector<bool> is_written(intervals.size());
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const bool sends : {true, false}) {
      for (std::size_t i = 0; i < steps[s].size(); ++i) {
        const auto& t = steps[s][i];
        if ((t.action == Action::kSend) != sends) continue;
        PlannedTransfer planned{t.action, t.peer, t.offset, t.count, {}, {}, {}};
        std::size_t n = 0;
        intervals.each(t, [&](std::size_t at) {
          const Next next = uses[s][i][n++];
          const bool is_final = next == Next::kNothing && is_result(at);
          const bool keeps = sends && rules.rounds && (next == Next::kFold || (is_final && !is_written[at]));
          append(planned.pieces, {intervals.end(at), !is_written[at], keeps, t.action == Action::kFold && is_final});
          if (!sends || keeps) is_written[at] = true;
        });
        plan.transfers.push_back(std::move(planned));
        step_of.push_back(s);
      }
    }
  }
  if (rules.in_rank_order) plan.together = folds_of(plan.transfers);
  find_waits(plan.transfers, step_of, rules.in_rank_order);
  if (rules.in_turns) take_turns(plan.transfers, step_of, steps);
  for (std::size_t at = 0; at < intervals.size(); ++at) {
    if (!is_written[at] && is_result(at))
      plan.untouched.push_back({intervals.begin(at), intervals.end(at) - intervals.begin(at)});
  }
  return plan;
}

}  // namespace netfold::group

// Symmetry, where it is exact: steps in which all ranks send alike are simulated once.
//
// Two steps are alike if every rank sends as many elements to the same ranks in both. A ring has one kind of step, of
// which each rank takes 2(n-1); a simulation of it costs O(n), not O(n^2). Steps are compared in full, rank by rank;
// nothing is guessed from an algorithm's name.
//
// One step after the other is what happens in lock-step by definition. It is also what happens if a rank begins a step
// when its own step before has ended, so long as every step ends at one time for all: then all begin the next together.
// Where steps do not, or pieces overtake, there is no symmetry to use, and these functions say so by giving nothing.
#pragma once

#include <optional>

#include "base/result.h"
#include "sim/collective.h"
#include "sim/flow_simulator.h"

namespace netfold::sim {

// The transfers in steps of one kind, and the number of such steps.
struct Kind {
  std::size_t steps = 0;
  Workload workload;
};

struct AlikeResult {
  double time_s = 0;
  std::vector<double> bits_by_resource;
  std::size_t solves = 0, rates_given = 0;
};

using Simulate = std::function<Result<FlowResult>(const Workload&)>;

// Nothing: no two steps are alike, or they are not the same for all.
Result<std::optional<std::vector<Kind>>> kinds_of(int world, const Schedules& schedules, const Timing& timing);

Result<std::optional<AlikeResult>> simulate_alike(int world, const std::vector<Kind>& kinds, Start start,
                                                  const Simulate& simulate);

}  // namespace netfold::sim

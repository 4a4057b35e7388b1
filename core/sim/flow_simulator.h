// Flows in virtual time: each transfer has the max-min fair rate of its path while it lasts, and everything that
// happens is the start or the end of one. Between two such events rates do not change, so nothing else is computed.
//
// A transfer starts when all that it needs has ended, and its own delay has passed. Its first bit takes the path's
// latency; then it takes its share of every resource on its path until its last bit is through.
//
// Deterministic: events at one time are handled in the order of their tasks' numbers.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "sim/workload.h"

namespace netfold::sim {

struct Path {
  std::vector<int> resources;  // a resource named k times is taken k times
  double latency_s = 0;
};
// Asked from time to time; false ends a simulation with an error.
using GoesOn = std::function<bool()>;
constexpr std::size_t kEventsBetweenQuestions = 1 << 14;

// Asked once a transfer, when it starts.
using PathOf = std::function<Result<void>(const Workload& workload, int task, Path& path)>;

struct FlowResult {
  double time_s = 0;                        // when the last task ended
  std::vector<double> start_s, end_s;       // by task
  std::vector<double> bits_by_resource;     // that passed
  std::size_t solves = 0, rates_given = 0;  // work done: times that rates were computed, rates computed
};

// Errors are those of `path_of`, and kTimeout where it was not to go on.
Result<FlowResult> simulate_flows(const std::vector<double>& capacities_bit_s, const Workload& workload,
                                  const PathOf& path_of, const GoesOn& goes_on = {});

}  // namespace netfold::sim

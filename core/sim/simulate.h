// A collective on a network, from its name to its time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"
#include "sim/collective.h"
#include "sim/network.h"

namespace netfold::sim {

struct Question {
  std::string algorithm;
  schedule::Request request;  // of no rank in particular
  Timing timing;
  Placement placement;
};

struct Answer {
  double time_s = 0;
  std::vector<double> bits_by_resource;
  Workload workload;                   // what was simulated
  std::vector<double> start_s, end_s;  // by its tasks
  std::size_t solves = 0, rates_given = 0;
};

Result<Answer> simulate(const Topology& topology, const Question& question);

}  // namespace netfold::sim

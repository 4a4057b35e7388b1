// A collective on a network, from its name to its time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"
#include "sim/collective.h"
#include "sim/network.h"
#include "sim/symmetry.h"

namespace netfold::sim {

struct Question {
  schedule::Request request;  // of no rank in particular
  Timing timing;
  Placement placement;
  GoesOn goes_on = {};
  bool symmetry = true;   // use it where it is exact (symmetry.h)
  bool transfers = true;  // the answer says when each began and ended; simulated one by one then
};

struct Answer {
  double time_s = 0;
  std::vector<double> bits_by_resource;
  Workload workload;                   // `transfers`: what was simulated
  std::vector<double> start_s, end_s;  // `transfers`: by its tasks
  std::vector<Path> paths;             // `transfers`: by its tasks
  std::size_t kinds = 0;               // of steps, where symmetry was used
  std::size_t solves = 0, rates_given = 0;
};

// A question whose schedules are made, to be answered with one seed after the other.
class Simulation {
 public:
  // `topology` must outlive it.
  static Result<Simulation> make(const Topology& topology, Question question);

  Result<Answer> run(std::uint64_t seed);
  bool depends_on_seed() { return network_.routing().has_hashed(); }  // so far

 private:
  Simulation(Question question, Network network) : question_(std::move(question)), network_(std::move(network)) {}
  Result<void> make_workload();

  Question question_;
  Network network_;
  schedule::ByRank schedules_;
  std::optional<std::vector<Kind>> kinds_;
  std::optional<Workload> workload_;
};

Result<Answer> simulate(const Topology& topology, const Question& question);

}  // namespace netfold::sim

#include "sim/simulate.h"

namespace netfold::sim {

Result<Simulation> Simulation::make(const Topology& topology, Question question) {
  const int world = question.request.world;
  auto network = Network::make(topology, world, question.placement);
  if (!network) return tl::unexpected(network.error());
  network->set_goes_on(question.goes_on);
  auto schedules = schedule::make_all(question.request);
  if (!schedules) return tl::unexpected(schedules.error());
  Simulation made(std::move(question), std::move(*network));
  made.schedules_ = std::move(*schedules);
  // Transfers that are hashed one by one take other ways in every step.
  if (made.question_.symmetry && !made.question_.transfers && !made.question_.placement.rehash) {
    auto kinds = kinds_of(world, made.schedules_, made.question_.timing);
    if (!kinds) return tl::unexpected(kinds.error());
    made.kinds_ = std::move(*kinds);
  }
  return made;
}

Result<void> Simulation::make_workload() {
  if (workload_) return {};
  auto workload = workload_of(question_.request.world, schedules_, question_.timing);
  if (!workload) return tl::unexpected(workload.error());
  workload_ = std::move(*workload);
  return {};
}

Result<Answer> Simulation::run(std::uint64_t seed) {
  network_.set_seed(seed);
  Answer answer;
  if (kinds_) {
    auto alike = simulate_alike(question_.request.world, *kinds_, question_.timing.start,
                                [&](const Workload& workload) { return network_.simulate(workload); });
    if (!alike) return tl::unexpected(alike.error());
    if (*alike) {
      answer.time_s = (*alike)->time_s;
      answer.bits_by_resource = std::move((*alike)->bits_by_resource);
      answer.kinds = kinds_->size();
      answer.solves = (*alike)->solves;
      answer.rates_given = (*alike)->rates_given;
      return answer;
    }
  }
  if (auto made = make_workload(); !made) return tl::unexpected(made.error());
  if (question_.transfers) answer.paths.resize(workload_->tasks.size());
  auto flows = simulate_flows(
      network_.capacities(), *workload_,
      [&](const Workload& all, int task, Path& path) {
        auto found = network_.path_of(all, task, path);
        if (question_.transfers) answer.paths[static_cast<std::size_t>(task)] = path;
        return found;
      },
      network_.goes_on());
  if (!flows) return tl::unexpected(flows.error());
  answer.time_s = flows->time_s;
  answer.bits_by_resource = std::move(flows->bits_by_resource);
  if (question_.transfers) {
    answer.workload = *workload_;
    answer.start_s = std::move(flows->start_s);
    answer.end_s = std::move(flows->end_s);
  }
  answer.solves = flows->solves;
  answer.rates_given = flows->rates_given;
  return answer;
}

Result<Answer> simulate(const Topology& topology, const Question& question) {
  auto simulation = Simulation::make(topology, question);
  if (!simulation) return tl::unexpected(simulation.error());
  return simulation->run(question.placement.seed);
}

}  // namespace netfold::sim

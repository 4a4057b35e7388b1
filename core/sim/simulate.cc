#include "sim/simulate.h"

#include "sim/symmetry.h"

namespace netfold::sim {
namespace {

Answer answer_of(AlikeResult alike) {
  Answer answer;
  answer.time_s = alike.time_s;
  answer.bits_by_resource = std::move(alike.bits_by_resource);
  answer.kinds = alike.kinds;
  answer.solves = alike.solves;
  answer.rates_given = alike.rates_given;
  return answer;
}

}  // namespace

Result<Answer> simulate(const Topology& topology, const Question& question) {
  const int world = question.request.world;
  auto network = Network::make(topology, world, question.placement);
  if (!network) return tl::unexpected(network.error());
  const auto schedules = schedule::make_all(question.algorithm, question.request);
  if (!schedules) return tl::unexpected(schedules.error());
  // Transfers that are hashed one by one take other ways in every step.
  const bool may_be_alike = question.symmetry && !question.transfers && !question.placement.rehash;
  if (may_be_alike) {
    auto alike = simulate_alike(world, *schedules, question.timing,
                                [&](const Workload& workload) { return network->simulate(workload); });
    if (!alike) return tl::unexpected(alike.error());
    if (*alike) return answer_of(std::move(**alike));
  }
  auto workload = workload_of(world, *schedules, question.timing);
  if (!workload) return tl::unexpected(workload.error());
  Answer answer;
  if (question.transfers) answer.paths.resize(workload->tasks.size());
  auto flows = simulate_flows(network->capacities(), *workload, [&](const Workload& all, int task, Path& path) {
    auto found = network->path_of(all, task, path);
    if (question.transfers) answer.paths[static_cast<std::size_t>(task)] = path;
    return found;
  });
  if (!flows) return tl::unexpected(flows.error());
  answer.time_s = flows->time_s;
  answer.bits_by_resource = std::move(flows->bits_by_resource);
  if (question.transfers) {
    answer.workload = std::move(*workload);
    answer.start_s = std::move(flows->start_s);
    answer.end_s = std::move(flows->end_s);
  }
  answer.solves = flows->solves;
  answer.rates_given = flows->rates_given;
  return answer;
}

}  // namespace netfold::sim

#include "sim/simulate.h"

namespace netfold::sim {

Result<Answer> simulate(const Topology& topology, const Question& question) {
  const int world = question.request.world;
  auto network = Network::make(topology, world, question.placement);
  if (!network) return tl::unexpected(network.error());
  const auto schedules = [&](int rank) {
    schedule::Request request = question.request;
    request.rank = rank;
    return schedule::make(question.algorithm, request);
  };
  auto workload = workload_of(world, schedules, question.timing);
  if (!workload) return tl::unexpected(workload.error());
  auto flows = network->simulate(*workload);
  if (!flows) return tl::unexpected(flows.error());
  Answer answer;
  answer.time_s = flows->time_s;
  answer.bits_by_resource = std::move(flows->bits_by_resource);
  answer.workload = std::move(*workload);
  answer.start_s = std::move(flows->start_s);
  answer.end_s = std::move(flows->end_s);
  answer.solves = flows->solves;
  answer.rates_given = flows->rates_given;
  return answer;
}

}  // namespace netfold::sim

#include "testing/plan_peers.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "group/via_peers/buffer_layout.h"
#include "group/via_peers/plans.h"

namespace netfold::testing {
namespace {

using schedule::Collective;

constexpr std::size_t kElementsMax = 12000;  // of all ranks' parts together

const char* safe_algorithm(Collective collective) {
  return collective == Collective::kBarrier ? "dissemination" : "ring";
}

}  // namespace

bool is_served(const JobPlan& job, group::CollectiveRequest request) {
  group::Plans plans(job.world, 0);
  plans.set_order(job.order);
  request.count = 1;
  return plans.slices_of(request).has_value();
}

void fit_to_world(JobPlan& job) {
  for (auto& [request, is_in_place] : job.tensors) request.root = std::min<int>(request.root, job.world - 1);
  if (!job.is_among_peers) return;
  job.order.clear();
  for (auto& [request, is_in_place] : job.tensors) {
    if (is_served(job, request)) continue;
    request.algorithm.name = safe_algorithm(request.collective);
  }
}

void PeerDrawing::run() {
  for (JobPlan& job : plan_.jobs) {
    if (prng_.chance(1.0 / 3)) draw_job(job);
  }
  for (FaultPlan& fault : plan_.faults) {
    if (plan_.jobs[fault.job].is_among_peers) draw_fault(fault);
  }
}

void PeerDrawing::draw_job(JobPlan& job) {
  job.is_among_peers = true;
  job.world = static_cast<std::uint16_t>(1 + prng_.below(9));
  if (prng_.chance(0.5)) job.order = draw_order(job.world);
  job.stream = draw_stream();
  job.drives_in_waits = prng_.chance(0.3);
  for (TensorPlan& tensor : job.tensors) tensor = draw_tensor(job);
}

// The ranks at the positions of a BiGraph, and those that hand over to them (schedule::Request).
std::vector<int> PeerDrawing::draw_order(int world) {
  std::vector<int> order(static_cast<std::size_t>(world));
  std::iota(order.begin(), order.end(), 0);
  const auto shuffle = [&](auto first, std::size_t count) {
    for (std::size_t i = count; i > 1; --i) std::swap(first[i - 1], first[prng_.below(i)]);
  };
  shuffle(order.begin(), order.size());
  const std::size_t positions = std::bit_floor(order.size());
  if (order.size() == positions) return order;
  order.resize(2 * positions, -1);
  shuffle(order.begin() + static_cast<std::ptrdiff_t>(positions), positions);
  return order;
}

// From what is barely enough for the executor to what a kernel gives.
StreamShape PeerDrawing::draw_stream() {
  StreamShape shape;
  shape.buffer_bytes = std::size_t{2048} << prng_.below(7);
  shape.window_bytes = std::size_t{512} << prng_.below(9);
  shape.piece_max = std::max(shape.window_bytes >> prng_.below(8), std::size_t{16});
  if (prng_.chance(0.4)) shape.bytes_per_s = 2e6 * static_cast<double>(1u << prng_.below(8));
  shape.is_memory = prng_.chance(0.3);
  if (shape.is_memory) shape.window_bytes = std::max<std::size_t>(shape.window_bytes, 4096);  // a ring is much larger
  return shape;
}

TensorPlan PeerDrawing::draw_tensor(const JobPlan& job) {
  const Travel travel = kTravels[prng_.below(kTravels.size())];
  const bool is_in_place = prng_.chance(0.6);
  group::CollectiveRequest request = draw_collective(job);
  request.type = travel.type;
  request.format = travel.format;
  request.average = group::folds(request.collective) && prng_.chance(0.3);
  if (request.collective == Collective::kBarrier) return {request, is_in_place};
  const auto parts = static_cast<std::size_t>(group::buffer_layout_of(request.collective, 1, job.world, 0).parts);
  const std::size_t most = kElementsMax / parts;
  request.count = prng_.chance(0.4) ? prng_.below(most + 1) : prng_.below((std::size_t{1} << prng_.below(9)) + 1);
  return {request, is_in_place};
}

// Any algorithm of the table that can serve this.
group::CollectiveRequest PeerDrawing::draw_collective(const JobPlan& job) {
  constexpr std::array kOthers{Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
                               Collective::kBarrier};
  const auto table = schedule::algorithms();
  group::CollectiveRequest request;
  schedule::Algorithm& algorithm = request.algorithm;
  request.collective = prng_.chance(0.6) ? Collective::kAllReduce : kOthers[prng_.below(kOthers.size())];
  request.bfp = job.bfp;
  request.root = request.collective == Collective::kBroadcast ? static_cast<int>(prng_.below(job.world)) : 0;
  algorithm.group = static_cast<int>(1 + prng_.below(job.world));
  algorithm.sub_nodes = 1 << prng_.below(3);
  algorithm.switches = std::max(static_cast<int>(std::bit_floor(job.world)) / algorithm.sub_nodes, 1);
  algorithm.between = table[prng_.below(table.size())].name;
  for (int tries = 0; tries < 20; ++tries) {
    algorithm.name = table[prng_.below(table.size())].name;
    if (is_served(job, request)) return request;
  }
  algorithm.name = safe_algorithm(request.collective);
  return request;
}

void PeerDrawing::draw_fault(FaultPlan& fault) {
  using enum FaultKind;
  // The first ones may happen on one machine too, where ranks share memory and no network is between them.
  constexpr std::array kKinds{kPauseWorker, kStall,     kKillWorker, kDisagree, kLeaveEarly, kGiveUp, kPowerWorker,
                              kPartition,   kPartPeers, kCut,        kCutLine,  kCutStream,  kSlow};
  constexpr std::size_t kOnOneMachine = 6;
  const JobPlan& job = plan_.jobs[fault.job];
  const std::uint16_t world = job.world;
  fault.kind = kKinds[prng_.below(job.stream.is_memory ? kOnOneMachine : kKinds.size())];
  fault.rank = static_cast<std::uint16_t>(prng_.below(world));
  fault.other = static_cast<std::uint16_t>(prng_.below(world));
  fault.detail = prng_.next();
}

}  // namespace netfold::testing

// Packets in random small worlds: everything arrives, no buffer outgrows its headroom, nothing is faster than its
// links, and what the proof calls free of deadlock never stops.
#include "sim/packet_simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/prng.h"
#include "sim/builders.h"
#include "sim/deadlock.h"

namespace netfold::sim {
namespace {

constexpr double kRate = 100e9, kLatency = 500e-9;

Topology random_topology(Prng& prng) {
  const Cable cable{kRate, kLatency * prng.unit()};
  switch (prng.below(4)) {
    case 0: return *star(2 + static_cast<int>(prng.below(6)), cable);
    case 1: return *leaf_spine(2 + static_cast<int>(prng.below(3)), 1 + static_cast<int>(prng.below(3)), 2, cable);
    case 2: return *torus(4 + static_cast<int>(prng.below(2)), 1 + static_cast<int>(prng.below(3)), 2, cable);
    default: return *bigraph(2, 4, cable);
  }
}

Workload random_flows(Prng& prng, int hosts) {
  Workload workload;
  const auto count = static_cast<int>(2 + prng.below(40));
  for (int i = 0; i < count; ++i) {
    const int from = static_cast<int>(prng.below(static_cast<std::uint64_t>(hosts)));
    const int to = (from + 1 + static_cast<int>(prng.below(static_cast<std::uint64_t>(hosts - 1)))) % hosts;
    Task task;
    task.sender = from;
    task.receiver = to;
    task.size_bits = static_cast<double>(1 + prng.below(1 << 20)) * 8;
    task.queue = prng.chance(0.5) ? Task::kNobody : from * hosts + to;
    const int added = workload.add(task);
    if (added > 0 && prng.chance(0.1)) workload.require(added, static_cast<int>(prng.below(added)));
  }
  workload.queues = hosts * hosts;
  EXPECT_TRUE(workload.finish());
  return workload;
}

// Whether it stopped forever.
void keeps_the_rules(std::uint64_t seed, bool& stopped) {
  Prng prng(seed);
  const Topology topology = random_topology(prng);
  const auto hosts = static_cast<int>(topology.hosts().size());
  const Workload workload = random_flows(prng, hosts);
  Placement placement;
  placement.seed = prng.next();
  auto network = Network::make(topology, hosts, placement);
  ASSERT_TRUE(network) << network.error().message;
  PacketSettings settings;
  settings.cut_through = prng.chance(0.5);
  settings.fair_queues = prng.chance(0.2);
  settings.pause_bytes = 20e3;
  settings.resume_bytes = 12e3;
  settings.priorities = {1 + static_cast<int>(prng.below(3)), true, {}};
  const auto packets = simulate_packets(*network, workload, settings);
  ASSERT_TRUE(packets) << packets.error().message;
  const auto proof = check_deadlock(topology, Spread::kHash, settings.priorities);
  ASSERT_TRUE(proof);
  EXPECT_FALSE(proof->cycle.empty() && packets->is_deadlocked) << "what is proved free of deadlock stopped";
  stopped = packets->is_deadlocked;
  if (packets->is_deadlocked) {
    EXPECT_GE(packets->waiting.size(), 2u) << "a deadlock without a circle of buffers";
    return;
  }
  EXPECT_LE(packets->buffer_max_bytes, settings.pause_bytes + kRate / 8 * 2 * kLatency + 2 * settings.packet_bytes);
  for (std::size_t i = 0; i < workload.tasks.size(); ++i) {
    const double alone_s = workload.tasks[i].size_bits / kRate;
    ASSERT_FALSE(std::isnan(packets->end_s[i])) << "task " << i << " never ended";
    // Parts of one queue travel together: of those only the start of the first is known.
    if (workload.tasks[i].queue == Task::kNobody) {
      EXPECT_GE(packets->end_s[i] - packets->start_s[i], alone_s * (1 - 1e-9));
    }
  }
}

TEST(PacketsUnderFuzz, KeepTheRules) {
  constexpr std::uint64_t kSeeds = 600;
  std::uint64_t stops = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    bool stopped = false;
    keeps_the_rules(seed, stopped);
    stops += stopped ? 1 : 0;
  }
  EXPECT_GT(stops, 0u) << "no world was hard enough to tell";
  EXPECT_LT(stops, kSeeds / 2);
}

}  // namespace
}  // namespace netfold::sim

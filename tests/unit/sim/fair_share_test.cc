// The rates that are kept up while flows come and go are those of the plain solver.
#include "sim/fair_share.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/prng.h"
#include "sim/max_min.h"

namespace netfold::sim {
namespace {

class FairShareUnderFuzz : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(FairShareUnderFuzz, EqualsThePlainSolverAfterEveryChange) {
  Prng prng(GetParam());
  std::vector<double> capacities;
  const std::size_t resources = 1 + prng.below(12);
  for (std::size_t i = 0; i < resources; ++i) capacities.push_back(static_cast<double>(1 + prng.below(4)) * 1e9);
  FairShare fair(capacities);
  std::map<int, std::vector<int>> active;
  for (int change = 0; change < 200; ++change) {
    for (std::uint64_t batch = 1 + prng.below(4); batch > 0; --batch) {
      const int flow = static_cast<int>(prng.below(20));
      if (active.contains(flow)) {
        fair.remove(flow);
        active.erase(flow);
        continue;
      }
      std::vector<int>& path = active[flow];
      for (std::uint64_t hops = 1 + prng.below(4); hops > 0; --hops) {
        path.push_back(static_cast<int>(prng.below(resources)));
      }
      fair.add(flow, path);
    }
    fair.solve();
    std::vector<std::vector<int>> paths;
    for (const auto& [flow, path] : active) paths.push_back(path);
    const std::vector<double> expected = max_min(capacities, paths);
    std::size_t at = 0;
    for (const auto& [flow, path] : active) {
      ASSERT_NEAR(fair.rate(flow), expected[at], 1e-9 * expected[at]) << "flow " << flow << ", change " << change;
      ++at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FairShareUnderFuzz, ::testing::Range<std::uint64_t>(0, 100));

}  // namespace
}  // namespace netfold::sim

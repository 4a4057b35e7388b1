// Many seeds in several processes: a cluster that crashes its process fails its seed, and the others go on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace netfold::vopr {

struct SeedRun {
  std::vector<std::uint64_t> seeds;
  int processes = 1;
  bool stops_at_failure = false;  // the seeds after the first failure are left out
};

// `run` returns what is wrong, or nothing. Failures are told to `on_failure` as they come, from this process or
// another; progress goes to standard error.
struct SeedCounts {
  std::uint64_t passed = 0, failed = 0;
};
SeedCounts run_seeds(const SeedRun& wanted, const std::function<std::string(std::uint64_t)>& run,
                     const std::function<void(std::uint64_t, const std::string&)>& on_failure);

}  // namespace netfold::vopr

#include "switch/fair_shares.h"

#include <algorithm>

namespace netfold::switching {
namespace {

constexpr double kSaid = 1.1;          // smaller differences come and go by themselves
constexpr double kLeastPart = 0.01;    // of all bytes: a job that has less hardly runs
constexpr double kCompetesFrom = 0.5;  // of what it has on the other way

}  // namespace

std::map<FairShares::Job, double> FairShares::look(const std::map<Job, Bytes>& so_far) {
  std::map<Job, Bytes> lately;
  for (const auto& [job, bytes] : so_far) {
    const auto before = before_.find(job);
    if (before == before_.end()) continue;
    if (bytes.up < before->second.up || bytes.down < before->second.down) continue;  // then it had another's counters
    lately[job] = {.up = bytes.up - before->second.up, .down = bytes.down - before->second.down};
  }
  before_ = so_far;

  std::map<Job, double> more;
  for (const auto way : {&Bytes::up, &Bytes::down}) {
    std::uint64_t all = 0;
    for (const auto& [job, bytes] : lately) all += bytes.*way;
    std::map<Job, double> competing;
    double sum = 0;
    for (const auto& [job, bytes] : lately) {
      const auto here = static_cast<double>(bytes.*way);
      const auto larger = static_cast<double>(std::max(bytes.up, bytes.down));
      if (here < kLeastPart * static_cast<double>(all) || here < kCompetesFrom * larger) continue;
      competing[job] = here;
      sum += here;
    }
    for (const auto& [job, here] : competing) {
      const double times = here * static_cast<double>(competing.size()) / std::max(sum, 1.0);
      if (times >= kSaid) more[job] = std::max(more[job], times);
    }
  }
  return more;
}

}  // namespace netfold::switching

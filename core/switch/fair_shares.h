// How a switch finds out which job has more of it than is fair. The workers' windows fill the same queues, and grow
// slowly: a job that came first would keep most of a link for minutes. So the switch looks a few times a second at what
// each job has sent and received, and tells those that have more than their fair share (PROTOCOL.md). Pure.
//
// The way to the switch and the way from it are links of their own. A job competes for the one on which it has most to
// carry; an all-reduce for both. Fair is the same number of bytes for each job that competes.
#pragma once

#include <cstdint>
#include <map>

#include "base/clock.h"

namespace netfold::switching {

class FairShares {
 public:
  using Job = std::uint64_t;                           // JobKey: never used again, unlike job ids
  static constexpr Nanoseconds kPeriod = kSecond / 4;  // from one look to the next

  struct Bytes {
    std::uint64_t up = 0, down = 0;
  };

  // Of all jobs that run: their bytes so far. Of each job that has had more since the last call than is fair: how many
  // times as much.
  std::map<Job, double> look(const std::map<Job, Bytes>& so_far);

 private:
  std::map<Job, Bytes> before_;
};

}  // namespace netfold::switching

// How a switch finds out which job has more of its link than is fair, or less. The workers' windows fill the same
// queues, and grow slowly: a job that came first would keep most of a link for minutes. So the switch looks a few times
// a second at what each job has sent and received, and tells those that have more than their fair share (PROTOCOL.md).
// Pure.
//
// The way to the switch and the way from it are links of their own. A job competes for the one on which it has most to
// carry; an all-reduce for both. Fair is the same number of bytes for each job that competes.
//
// All other traffic of the interface that leads to the workers counts as one more job. It cannot be told that it has
// too much. So then the jobs that have less than is fair are granted a rate, at which they may send though chunks are
// lost.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "wire/control/messages.h"

namespace netfold::switching {

class FairShares {
 public:
  using Job = std::uint64_t;                           // JobKey: never used again, unlike job ids
  static constexpr Nanoseconds kPeriod = kSecond / 4;  // from one look to the next

  struct Bytes {
    std::uint64_t up = 0, down = 0;
  };

  struct Share {
    Bytes bytes;                   // of UDP payload, so far
    std::string interface = {};    // "": not known
    std::size_t contributors = 1;  // each sends each chunk
  };
  struct Interface {
    Bytes carried, own;  // of whole frames, so far: of all programs, and of the switch
  };

  // Of all jobs that run, and of interfaces that lead to their workers: what they have carried until now. Of each job
  // that has had more since the last call than is fair, or less because of other traffic: what its workers should hear.
  std::map<Job, control::LinkShare> look(const std::map<Job, Share>& so_far,
                                         const std::map<std::string, Interface>& interfaces, Nanoseconds now);

 private:
  struct Lately {
    Bytes carried, own;  // between two looks, in the mean of the last ones
    int doubts = 0;      // looks in which the interface's counters are not believed
  };

  const Lately& remember(const std::string& interface, const Bytes& carried, const Bytes& own);

  std::map<Job, Bytes> before_;
  std::map<std::string, Interface> interfaces_before_;
  std::map<std::string, Lately> lately_;  // by interface
  Nanoseconds looked_at_ = 0;
};

}  // namespace netfold::switching

// The jobs of a data plane, each in as many parts as threads fold: what control threads admit and evict, and where
// counters are summed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "switch/data_plane.h"

namespace netfold::switching {

// A Part is made of an Admission and the number of its thread, and has a snapshot() of its counters. Threads use parts
// until they are evicted or have ended: this must outlive them.
template <class Part>
class JobShards {
 public:
  // place(thread, job, part) returns once the thread has it; a null part means no part.
  using Place = std::function<void(std::uint16_t, std::uint16_t, Part*)>;

  JobShards(std::uint16_t threads, Place place) : threads_(threads), place_(std::move(place)) {}

  void admit(const Admission& admission) {
    std::vector<std::unique_ptr<Part>> parts;
    for (std::uint16_t thread = 0; thread < threads_; ++thread) {
      parts.push_back(std::make_unique<Part>(admission, thread));
    }
    const std::uint16_t id = admission.lease.job;
    for (std::uint16_t thread = 0; thread < threads_; ++thread) place_(thread, id, parts[thread].get());
    const std::lock_guard lock(mutex_);
    jobs_[id] = std::move(parts);
  }

  void evict(std::uint16_t job) {
    for (std::uint16_t thread = 0; thread < threads_; ++thread) place_(thread, job, nullptr);
    const std::lock_guard lock(mutex_);
    jobs_.erase(job);
  }

  // All parts together; zero of a job that is not there.
  JobCounters counters(std::uint16_t job) const {
    const std::lock_guard lock(mutex_);
    JobCounters sum;
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return sum;
    for (const auto& part : found->second) sum += part->snapshot();
    return sum;
  }

 private:
  std::uint16_t threads_;
  Place place_;
  mutable std::mutex mutex_;  // of jobs_: control and metrics threads
  std::map<std::uint16_t, std::vector<std::unique_ptr<Part>>> jobs_;
};

// Drops of all threads together, by DropReason; drops_of(thread, reason) are one's.
template <class Threads, class DropsOf>
std::vector<std::uint64_t> sum_of_drops(const Threads& threads, DropsOf drops_of) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(DropReason::kCount));
  for (const auto& thread : threads) {
    for (std::size_t reason = 0; reason < sums.size(); ++reason) {
      sums[reason] += drops_of(*thread, static_cast<DropReason>(reason));
    }
  }
  return sums;
}

}  // namespace netfold::switching

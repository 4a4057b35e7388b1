// What the switch's data plane is told makes sense: a job id belongs to one running job, an epoch never comes again,
// and no process without the secret is let in.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "testing/history.h"
#include "wire/lease.h"

namespace netfold::testing {

class AdmissionsChecker {
 public:
  explicit AdmissionsChecker(History& history) : history_(history) {}

  void on_switch_start() {
    running_.clear();
    epochs_.clear();
  }
  void on_admit(const wire::Lease& lease) {
    if (!running_.insert(lease.job).second) {
      history_.violate("admissions", fmt::format("job id {} is given to two running jobs", lease.job));
    }
    if (!epochs_.insert({lease.job, lease.epoch}).second) {
      history_.violate("admissions", fmt::format("epoch {} of job id {} came again", lease.epoch, lease.job));
    }
    lives_[{lease.job, lease.epoch}] = begin_life();
  }
  void on_evict(std::uint16_t job) {
    if (running_.erase(job) == 0) {
      history_.violate("admissions", fmt::format("job id {} is evicted, but does not run", job));
    }
  }
  void on_worker_admitted(Party rank, bool has_wrong_secret) {
    if (!has_wrong_secret) return;
    history_.violate("admissions",
                     fmt::format("a process with a wrong secret was let in as {}", History::to_string(rank)));
  }

  // A job from its admission to its end; lives are counted over the whole history.
  struct Life {
    std::uint64_t number = 0;
    Nanoseconds began = 0;
  };
  Life begin_life() { return {++last_life_, history_.now()}; }  // also of a job without a switch
  // The one that a worker with this lease is part of.
  Life life_of(const wire::Lease& lease) {
    const auto found = lives_.find({lease.job, lease.epoch});
    if (found != lives_.end()) return found->second;
    history_.violate("admissions", fmt::format("a worker is in epoch {} of job id {}, which the data plane never had",
                                               lease.epoch, lease.job));
    return {};
  }
  std::uint64_t lives() const { return last_life_; }
  std::size_t running() const { return running_.size(); }

 private:
  History& history_;
  std::uint64_t last_life_ = 0;
  std::set<std::uint16_t> running_;
  std::set<std::pair<std::uint16_t, std::uint16_t>> epochs_;       // (job id, epoch) of this life of the switch
  std::map<std::pair<std::uint16_t, std::uint16_t>, Life> lives_;  // of all lives of the switch
};

}  // namespace netfold::testing

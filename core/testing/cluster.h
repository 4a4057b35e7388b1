// A whole cluster in virtual time, from one seed: the real sessions of the ranks, the real switch, a simulated network
// between them, and everything that the plan lets go wrong. Two phases: while there are faults, whatever is reported
// must be true (safety); once they have ended, everything ends within its time and the next life of each job works
// (liveness). After each phase nothing may be left over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/meeting.h"
#include "testing/peer_process.h"
#include "testing/plan.h"
#include "testing/surroundings.h"
#include "testing/switch_process.h"
#include "testing/worker_process.h"

namespace netfold::testing {

struct Outcome {
  std::optional<Violation> violation;
  std::uint64_t events = 0;
  Nanoseconds virtual_time = 0;
  std::uint64_t lives = 0;  // of jobs
};

class Cluster {
 public:
  // `on_line` gets the history, line by line.
  explicit Cluster(Plan plan, std::function<void(const std::string&)> on_line = {});

  Outcome run();

 private:
  // Where the processes of a rank run, one after the other.
  struct Seat {
    Party rank;
    std::uint32_t ip = 0;
    int lives = 0;  // started so far
    bool is_off = false;
    std::unique_ptr<RankProcess> process;
  };

  void start_switch();
  void crash_switch(bool power, Nanoseconds lasts);
  void stop_switch(Nanoseconds lasts);
  void start(Seat& seat);
  void start_later(Seat& seat, Nanoseconds after);
  void on_exit(Seat& seat);
  void crash(Seat& seat, bool power, Nanoseconds lasts);
  void end_when_noticed(Seat& seat, Nanoseconds noticed_at);
  void inflict(const FaultPlan& fault);
  void inflict_among_peers(Seat& seat, const FaultPlan& fault);
  void partition(Seat& seat, const FaultPlan& fault);
  void cut(Seat& seat, const FaultPlan& fault);
  void send_intruder(const FaultPlan& fault);
  void send_stranger(Nanoseconds lasts);
  void become_calm();
  bool may_run() const;
  bool run_until(Nanoseconds when);
  bool run_until_all_end(Nanoseconds limit);
  Seat& seat_of(std::size_t job, std::uint16_t rank);
  const JobPlan& job_of(const Seat& seat) const { return plan_.jobs[static_cast<std::size_t>(seat.rank.job)]; }
  // Where the rank's connections lead: the switch, or the other ranks of its job.
  std::vector<std::uint32_t> peers_of(const Seat& seat) const;
  void check_leftovers();
  // `lasts` from now, but no fault outlasts the phase.
  Nanoseconds end_of(Nanoseconds lasts) const;

  Plan plan_;
  Surroundings around_;
  Nanoseconds start_, calm_at_;
  Nanoseconds switch_resumes_at_ = 0;               // from its last pause
  std::vector<std::unique_ptr<Meeting>> meetings_;  // by job
  std::vector<Seat> seats_;
  std::unique_ptr<SwitchProcess> switch_;
  std::vector<std::unique_ptr<WorkerProcess>> intruders_;
  std::vector<std::unique_ptr<link::ControlLink>> strangers_;
  std::uint64_t switch_lives_ = 0, processes_ = 0;
  bool is_calm_ = false;
};

}  // namespace netfold::testing

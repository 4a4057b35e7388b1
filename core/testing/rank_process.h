// One rank's process in a simulated cluster, however it folds: it joins its job, submits the tensors of its job to a
// real session as the driver does (group/driver.h), checks what comes, and leaves.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "group/session.h"
#include "testing/actor.h"
#include "testing/surroundings.h"

namespace netfold::testing {

class RankProcess : public Actor {
 public:
  struct Options {
    Party rank;
    link::Address address;  // where its datagrams come from and go to
    std::uint64_t seed;     // of its tensors
    bool is_intruder = false;
  };

  // `on_exit` is called, once, when the process has come to its end; not if it is killed.
  RankProcess(Surroundings& around, Options options, std::function<void()> on_exit);

  // It submits nothing before then, and does not leave.
  void compute_until(Nanoseconds when) { acts_at_ = std::max(acts_at_, when); }
  const char* doing() const;
  bool is_gone() const { return state_ == State::kGone; }
  bool has_failed() const { return error_.has_value(); }

 protected:
  enum class State { kJoining, kWorking, kFailed, kLeaving, kGone };

  // Goes on with joining, and calls begin() in the end, or fails.
  virtual void join() = 0;
  virtual group::CollectiveRequest ask(std::size_t index);
  virtual bool rests() const { return false; }  // nobody drives the session now
  // Once nothing more can be done now: asks to be woken for what the session waits for.
  virtual void sleep(bool has_moved) = 0;
  // Says goodbye: when to call it again, or nothing once it is said.
  virtual std::optional<Nanoseconds> part(Nanoseconds now);
  virtual void let_go() { session_.reset(); }

  void run() override;
  void begin(std::unique_ptr<group::Session> session, AdmissionsChecker::Life life);
  void fail_to_join(const Error& error);
  void leave();
  void on_news();
  void report(const Error& error, Nanoseconds since);

  const JobPlan& plan() const { return around_.plan.jobs[static_cast<std::size_t>(options_.rank.job)]; }

  Surroundings& around_;
  const Options options_;
  std::unique_ptr<group::Session> session_;
  State state_ = State::kJoining;
  std::optional<Error> error_;
  Nanoseconds started_at_;
  std::vector<Tensor> tensors_;
  std::size_t submitted_ = 0, finished_ = 0;
  std::size_t wanted_ = 0;                         // tensors that it will submit before it leaves
  Nanoseconds acts_at_ = 0;                        // submits the next tensors, or leaves
  bool has_news_ = false;                          // on a connection
  std::optional<std::size_t> other_than_planned_;  // a tensor that the rank asked something else for than the others

 private:
  void work();
  void submit_next();
  void finish(group::Ticket ticket);
  void check_bits(std::size_t index);
  void fail(const Error& error);
  void exit();

  std::function<void()> on_exit_;
  AdmissionsChecker::Life life_;
};

}  // namespace netfold::testing

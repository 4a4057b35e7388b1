// The driver of a group: the one loop that runs a session (session.h) over sockets in real time. It owns the progress
// thread, the lock, the wake-ups, the completions, and the decision how to wait: spin, yield or sleep.
//
// A thread that waits for a ticket drives the session itself, because waking the progress thread, and being woken by
// it, takes longer than a small all-reduce. The progress thread stands aside meanwhile and goes on with what is left.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "base/wakeup.h"
#include "group/completions.h"
#include "group/group.h"
#include "group/session.h"

namespace netfold::group {

struct DriverOptions {
  std::string thread_name;
  int rank = 0;
  int core = kAnyCore;                       // of the progress thread
  bool has_thread = true;                    // else next_completion() drives the session too
  Nanoseconds timeout = 30 * kSecond;        // for links to take what others wait for
  bool submits_at_once = false;              // submit() hands the request to the session itself, if nobody drives
  std::function<void()> on_completion = {};  // called each time there is a completion to take
  std::string closed = "this group has been closed: open another";  // what a submit after close() is told
};

// How long a thread looks for news before it sleeps, in yields of its core. By default it sleeps at once: a network is
// so much slower than a wake-up that looking for its packets is in vain.
struct WaitPolicy {
  int thread_yields = 0, caller_yields = 0;
  int vain_yields = 0;     // yields that gave the core to no other thread, before it gives up looking
  int ranks_per_core = 1;  // at most, where ranks are spread evenly
  bool is_alone = false;   // no other rank of this machine runs on our core, as far as is known
};
// For a machine that this rank shares with `local` other ranks.
WaitPolicy policy_among(int local);

class Driver : public Group {
 public:
  ~Driver() override;  // a derived class calls close() first

  Result<void> run(const CollectiveRequest& request) override;
  Result<Ticket> submit(const CollectiveRequest& request) override { return hand_over(request, false); }
  Result<Ticket> submit_awaited(const CollectiveRequest& request) override { return hand_over(request, true); }
  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) override;
  std::optional<Completion> next_completion(Nanoseconds timeout) override;
  void set_timeout(Nanoseconds timeout) override;
  void close(std::optional<Error> error = std::nullopt) override;
  nlohmann::json counters() const override;
  std::optional<Error> error() const;  // why the group has failed

 protected:
  explicit Driver(DriverOptions options);

  // Once. From now on the session is the driver's.
  void start(std::unique_ptr<Session> session, WaitPolicy policy = {});
  bool is_started() const { return is_started_; }
  bool is_closing() const { return is_closing_; }
  // In close(): before the session leaves, and when it has left.
  virtual void before_leave(Session&) {}
  virtual void after_leave(Session&) {}
  Result<void> finish(Ticket ticket);  // waits until what was submitted is over

 private:
  struct Submission {
    Ticket ticket;
    CollectiveRequest request;
    std::unique_ptr<Prepared> prepared;
  };
  // Until when and for what to sleep before the next step.
  struct Sleep {
    Nanoseconds until;
    std::vector<pollfd> polls;
  };
  class Turn;

  Result<Ticket> hand_over(const CollectiveRequest& request, bool is_awaited);
  void submit_now();
  bool is_at_rest() const;
  bool is_work_left() const;
  bool may_submit() const { return has_submissions_ || awaits_device_; }
  bool run_quickly(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared);

  // Of the holder of driving_.
  bool step();
  bool move();
  void take_submissions();
  void take_finished();
  template <class Call>
  Result<bool> guarded(Call call) const;
  Result<bool> hand_to_session(Submission& submission);
  void fail_with(const Error& error, const std::vector<Ticket>& refused = {});
  void leave();
  void note_counters() const;

  void run_thread();
  void stand_aside();
  template <class Take>
  std::optional<Completion> drive(Take take, Nanoseconds timeout);
  void send_out();
  std::optional<Sleep> look_around(Nanoseconds until);
  void go_to_sleep(Sleep& sleep, const Wakeup& wakeup);
  void spread_out();
  bool is_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  const Wakeup& own_wakeup() const { return is_thread() ? thread_wakeup_ : caller_wakeup_; }

  const DriverOptions options_;
  Wakeup thread_wakeup_, caller_wakeup_;         // one each: clearing one must not take news from the other
  mutable std::atomic<int> callers_ = 0;         // threads that drive or are about to: the progress thread stands aside
  mutable std::atomic<bool> has_work_ = false;   // when a caller last looked
  std::atomic<Nanoseconds> wanted_timeout_ = 0;  // that the session has not heard of; 0: it has
  std::atomic<Nanoseconds> next_deadline_ = kNever;   // of the session, when somebody last looked
  std::atomic<Nanoseconds> thread_sleeps_until_ = 0;  // 0: it is awake, or the last caller to go wakes it anyway
  std::mutex joining_;                                // of thread_, among callers of close()

  // Of the holder of driving_.
  mutable std::mutex driving_;
  std::unique_ptr<Session> session_;  // null before start() and after close()
  WaitPolicy policy_;
  int life_line_ = -1;                         // the session's
  Nanoseconds time_ = 0;                       // of the last step
  Nanoseconds next_move_ = 0, next_note_ = 0;  // when to look at the core, and at the counters
  double cpu_s_ = 0;                           // of the progress thread

  // Under mutex_.
  mutable std::mutex mutex_;
  std::deque<Submission> submitted_;
  Session* preparing_ = nullptr;  // the session, while prepare() may be called
  std::optional<Error> failure_, parting_error_;
  const std::unique_ptr<nlohmann::json> counters_;

  std::atomic<bool> is_started_ = false, is_closing_ = false, has_submissions_ = false, has_failed_ = false;
  std::atomic<bool> awaits_device_ = false;  // the oldest of submitted_ has a tensor that is not here yet

  Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::group

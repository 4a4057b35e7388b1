// Ranks that fold among themselves, without a switch: any schedule of any collective, over shared memory and TCP, found
// by themselves. Collectives are handed over and return at once; one progress thread runs them, or the threads that
// wait for one do. After a failure every collective completes with its Error at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/collective/direct.h"
#include "engine/collective/executor.h"
#include "engine/collective/mesh.h"
#include "engine/engine.h"
#include "engine/thread_setup.h"
#include "engine/wakeup.h"

namespace netfold::engine {

struct HostGroupOptions {
  int rank = 0, world = 1;
  std::string listen = "127.0.0.1:0";
  double timeout_s = 30;                     // to connect, and for an all-reduce to make progress
  int core = kAnyCore;                       // of the progress thread
  bool shm = true;                           // between ranks of one machine
  int tcp_streams = 1;                       // connections to each rank of another
  bool inline_progress = false;              // no thread: next_completion() drives the collectives too
  std::function<void()> on_completion = {};  // called each time there is a completion to take
  std::string secret = {};                   // that all ranks must prove to know; "": none
};

struct HostGroupStats {
  link::StreamStats tcp, shm;
  int tcp_peers = 0, shm_peers = 0;
  std::uint64_t reduced_elements = 0;
  double cpu_s = 0;  // of the progress thread
};

class HostGroup final : public Engine {
 public:
  // Listens. Then every rank's address() is made known to all, and each calls connect() once.
  static Result<std::unique_ptr<HostGroup>> open(HostGroupOptions options);
  ~HostGroup() override;  // close()

  const std::string& address() const { return address_; }
  // Where the ranks sit, for hdrm: the rank at each physical position. Alike on all ranks, before connect().
  void set_physical_order(std::vector<int> order) { plans_.set_order(std::move(order)); }
  // Blocks until all ranks are connected to each other, at most timeout_s. `keep_going` is asked at least every 100 ms;
  // false gives up.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

  // Whoever waits in these moves the data himself: he has nothing else to do, and to wake a thread takes longer than a
  // small all-reduce.
  Result<void> run(const AllReduce& request, const CollectiveOptions& options = {}) override;
  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) override;
  std::optional<Completion> next_completion(Nanoseconds timeout) override;
  void close(std::optional<Error> error = std::nullopt) override;

  bool shares_memory() const { return direct_ != nullptr; }  // all ranks do; known once connected

  HostGroupStats stats() const;
  nlohmann::json counters() const override;
  std::optional<Error> error() const;

 private:
  static constexpr Nanoseconds kLookPeriod = 20 * kMillisecond;  // at the life lines, while busy

  HostGroup(HostGroupOptions options, std::unique_ptr<Mesh> mesh);

  struct Submitted {
    Ticket ticket;
    AllReduce request;
    numbers::WireFormat wire;
    Terms terms;
    std::vector<Slice> slices;  // of the executor; none: it is the direct executor's
  };

  Result<Ticket> hand_over(const AllReduce& request, const CollectiveOptions& options, bool is_awaited) override;
  Result<void> validate(const AllReduce& request, const CollectiveOptions& options) const;
  bool is_direct(const CollectiveOptions& options) const;
  bool is_at_rest() const;
  bool run_directly(Ticket ticket, const AllReduce& request, const CollectiveOptions& options);
  void learn_to_wait(int local);
  void run_thread();
  void stand_aside();
  class Turn;
  template <class Take>
  std::optional<Completion> drive(Take take, Nanoseconds timeout);
  void send_out();
  bool pump();
  bool step();
  // Until when and for what to sleep before the next step, if at all.
  struct Sleep {
    Nanoseconds until;
    std::vector<pollfd> descriptors;
    bool hears_bell;
  };
  std::optional<Sleep> look_around(Nanoseconds until);
  void wake_up(const Sleep& slept);
  void spread_out();
  bool is_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  bool look_again();
  void take_submissions();
  bool is_idle() const {
    return std::ranges::all_of(runners_, [](const Runner* each) { return each->is_idle(); });
  }
  bool waits_for(int rank) const;
  std::vector<int> blocking_ranks() const;
  std::vector<Ticket> take_finished();
  bool check();
  void check_blocked_by_the_gone();
  void check_progress(Nanoseconds time);
  Nanoseconds patience() const;
  Error timed_out(const Stall& stall) const;
  void fail(const Error& error, bool tell_others);
  void say_goodbye();
  void note_stats() const;

  HostGroupOptions options_;
  std::unique_ptr<Mesh> mesh_;
  std::string address_;
  Wakeup thread_wakeup_, caller_wakeup_;  // one each: who clears one must not take news from the other
  std::atomic<int> callers_ = 0;          // that drive or are about to: the thread stands aside
  std::atomic<bool> has_work_ = false;    // when a caller last looked
  std::mutex joining_;

  // Of whoever drives: the holder of driving_, which calls that begin or end it hold too.
  mutable std::mutex driving_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<DirectExecutor> direct_;  // where all ranks are on one machine
  std::vector<Runner*> runners_;            // those two
  std::uint64_t all_reduces_ = 0;           // so far
  Nanoseconds time_ = 0;                    // of the last check
  Nanoseconds last_progress_ = 0, next_look_ = 0, next_move_ = 0;
  bool has_moved_ = false;      // since the last check
  std::vector<int> announced_;  // whom we said we wait for
  Nanoseconds said_moving_ = 0;
  int thread_yields_ = 0, caller_yields_ = 0, vain_yields_ = 0;  // before sleeping
  int ranks_a_core_ = 1;                                         // at most, where they are spread evenly
  bool is_alone_ = false;  // on our core, of the ranks of this machine, as far as is known
  double cpu_s_ = 0;       // of the progress thread

  // Shared with callers, under mutex_.
  mutable std::mutex mutex_;
  std::deque<Submitted> submitted_;
  Plans plans_;
  std::optional<Error> failure_, parting_error_;
  bool is_connected_ = false;
  std::atomic<bool> is_closing_ = false;
  mutable HostGroupStats stats_;
  std::atomic<bool> has_submissions_ = false, has_failed_ = false;

  Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::engine

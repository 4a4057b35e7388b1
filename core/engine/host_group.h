// Ranks that fold among themselves, without a switch: any schedule of any collective, over shared memory and TCP, found
// by themselves. Collectives are handed over and return at once; one progress thread runs them, or the threads that
// wait do. After a failure every collective completes with its Error at once.
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

#include "engine/collective/executor.h"
#include "engine/collective/mesh.h"
#include "engine/collective/plans.h"
#include "engine/completions.h"
#include "engine/thread_setup.h"
#include "engine/wakeup.h"

namespace netfold::engine {

struct HostGroupOptions {
  int rank = 0, world = 1;
  std::string listen = "127.0.0.1:0";
  double timeout_s = 30;         // to connect, and for an all-reduce to make progress
  int core = kAnyCore;           // of the progress thread
  bool shm = true;               // between ranks of one machine
  bool inline_progress = false;  // no thread: wait() and next_completion() drive the all-reduces
  std::string secret = {};       // that all ranks must prove to know; "": none
};

struct HostGroupStats {
  link::StreamStats tcp, shm;
  int tcp_peers = 0, shm_peers = 0;
  std::uint64_t reduced_elements = 0;
};

class HostGroup {
 public:
  using Ticket = Completions::Ticket;

  // Listens. Then every rank's address() is made known to all, and each calls connect() once.
  static Result<std::unique_ptr<HostGroup>> open(HostGroupOptions options);
  ~HostGroup();  // close()

  const std::string& address() const { return address_; }
  // Blocks until all ranks are connected to each other, at most timeout_s. `keep_going` is asked at least every 100 ms;
  // false gives up.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

  // kInvalidArgument if this makes no sense; a failed group shows at the ticket. Every rank submits the same
  // collectives in the same order. A barrier has no memory; only the root's `in` is read in a broadcast.
  Result<Ticket> submit(const AllReduce& request, const CollectiveOptions& options);

  // As Client's.
  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout);
  std::optional<Completion> next_completion(Nanoseconds timeout);

  // Leaves the group. Unfinished all-reduces complete with an error. `error`, if there is one, is told to the others.
  void close(std::optional<Error> error = std::nullopt);

  HostGroupStats stats() const;
  std::optional<Error> error() const;

 private:
  HostGroup(HostGroupOptions options, std::unique_ptr<Mesh> mesh);

  struct Submitted {
    std::shared_ptr<Reduction> reduction;
    std::vector<Slice> slices;
  };

  void run();
  template <class Take>
  std::optional<Completion> drive(Take take, Nanoseconds timeout);
  bool pump();
  bool step();
  void rest(Nanoseconds until);
  bool look_again();
  void take_submissions();
  bool check();
  void check_blocked_by_the_gone();
  void check_progress(Nanoseconds time);
  Nanoseconds patience() const;
  Error timed_out(const Stall& stall) const;
  void fail(const Error& error, bool tell_others);
  void say_goodbye();
  void note_stats();

  HostGroupOptions options_;
  std::unique_ptr<Mesh> mesh_;
  std::string address_;
  Wakeup wakeup_;

  // Of whoever drives: the progress thread, or the holder of driving_, which calls that begin or end it hold too.
  std::mutex driving_;
  std::unique_ptr<Executor> executor_;
  Nanoseconds last_progress_ = 0, next_look_ = 0;
  std::vector<int> announced_;  // whom we said we wait for
  Nanoseconds said_moving_ = 0;
  int spins_ = 0, yields_ = 0;  // before sleeping

  // Shared with callers, under mutex_.
  mutable std::mutex mutex_;
  std::deque<Submitted> submitted_;
  Plans plans_;
  Ticket last_ticket_ = 0;
  std::optional<Error> failure_, parting_error_;
  bool is_connected_ = false;
  std::atomic<bool> is_closing_ = false;
  HostGroupStats stats_;
  std::atomic<bool> has_submissions_ = false, has_failed_ = false;

  Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::engine

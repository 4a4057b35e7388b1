// A worker's engine: all-reduces are handed over and return at once; one progress thread runs the window over the link
// and the control conversation, and completes them. After a failure every all-reduce completes with its Error at once.
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

#include "engine/completions.h"
#include "engine/control_connection.h"
#include "engine/stream.h"
#include "engine/thread_setup.h"
#include "engine/wakeup.h"

namespace netfold::engine {

// How to join, and what is the client's own; udp_port and mtu are found by join().
struct ClientOptions : JoinOptions {
  int core = kAnyCore;    // of the progress thread
  std::string faults;     // link::parse_faults; "": none
  std::string pcap_path;  // "": no capture
};

class Client {
 public:
  using Ticket = Operation::Ticket;

  // Joins the job; blocks until all workers are there, at most timeout_s. Errors as ControlConnection::join.
  static Result<std::unique_ptr<Client>> join(ClientOptions options);
  ~Client();  // close()

  // kInvalidArgument if `request` makes no sense; a failed job shows at the ticket.
  Result<Ticket> submit(const AllReduce& request);

  // A ticket is taken by exactly one of these two. Empty if nothing is finished within `timeout`; the second returns
  // empty at once when the client has been closed and everything was taken.
  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) { return completions_.wait(ticket, timeout); }
  std::optional<Completion> next_completion(Nanoseconds timeout) { return completions_.next(timeout); }

  // Leaves the job. Unfinished all-reduces complete with an error. `error`, if there is one, is told to the others.
  void close(std::optional<Error> error = std::nullopt);

  StreamStats stats() const;
  const wire::Lease& lease() const { return lease_; }
  std::optional<Error> error() const;

 private:
  Client(ClientOptions options, std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control);

  void run();
  void sleep(bool link_is_full);
  void take_submissions(Nanoseconds now);
  void check(Nanoseconds now);
  void check_left_ranks();
  void fail(const Error& error, bool tell_others);
  void complete(const std::vector<Ticket>& tickets, const std::optional<Error>& error);

  // Of the progress thread.
  ClientOptions options_;
  std::unique_ptr<link::Link> link_;
  std::unique_ptr<ControlConnection> control_;
  wire::Lease lease_;
  Stream stream_;
  std::size_t left_ranks_ = 0;  // how many were known to have left when last looked
  Wakeup wakeup_;
  bool control_is_ready_ = true;  // there may be something to read

  // Shared with callers, under mutex_.
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<Operation>> submitted_;
  Ticket last_ticket_ = 0;
  std::optional<Error> failure_;
  std::optional<Error> parting_error_;
  bool is_closing_ = false;
  StreamStats stats_;

  Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::engine

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

#include "engine/control_connection.h"
#include "engine/engine.h"
#include "engine/stream.h"
#include "engine/thread_setup.h"
#include "engine/wakeup.h"

namespace netfold::engine {

// How to join, and what is the client's own; udp_port and mtu are found by join().
struct ClientOptions : JoinOptions {
  int core = kAnyCore;                       // of the progress thread
  std::string faults;                        // link::parse_faults; "": none
  std::string pcap_path;                     // "": no capture
  std::function<void()> on_completion = {};  // called each time there is a completion to take
};

class Client final : public Engine {
 public:
  // Joins the job; blocks until all workers are there, at most timeout_s. Errors as ControlConnection::join.
  static Result<std::unique_ptr<Client>> join(ClientOptions options);
  ~Client() override;  // close()

  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) override {
    return completions_.wait(ticket, timeout);
  }
  std::optional<Completion> next_completion(Nanoseconds timeout) override { return completions_.next(timeout); }
  void close(std::optional<Error> error = std::nullopt) override;

  StreamStats stats() const;
  nlohmann::json counters() const override;
  const wire::Lease& lease() const { return lease_; }
  std::optional<Error> error() const;

 private:
  Client(ClientOptions options, std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control);

  Result<Ticket> hand_over(const AllReduce& request, const CollectiveOptions& how, bool is_awaited) override;
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
  std::optional<Error> failure_;
  std::optional<Error> parting_error_;
  bool is_closing_ = false;
  StreamStats stats_;
  double cpu_s_ = 0;  // of the progress thread

  Completions completions_;
  std::thread thread_;
};

nlohmann::json to_json(const wire::Lease& lease);  // for people

}  // namespace netfold::engine

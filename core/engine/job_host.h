// The host of a job: it folds nothing, receives no gradients, and is told by the switch when a tensor of its workers is
// folded (dpdk-switch, section 4.2.1, step 6). A progress thread asks, and keeps the conversation with the switch.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/completions.h"
#include "engine/control_connection.h"
#include "engine/host_path.h"
#include "engine/wakeup.h"

namespace netfold::engine {

class JobHost {
 public:
  using Ticket = std::uint64_t;

  // Joins the job as its host: before the last of its workers does. Blocks until all are there, at most timeout_s;
  // rank, udp_port and mtu are found here. Errors as ControlConnection::join.
  static Result<std::unique_ptr<JobHost>> join(JoinOptions options);
  ~JobHost();

  // The next tensor, in the order in which the workers submit them. Returns at once.
  Ticket expect(std::size_t elements, numbers::Format format);
  // Empty if the switch has not said within `timeout` that the tensor is folded. An Error once the job is over.
  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) { return completions_.wait(ticket, timeout); }
  void close();  // leaves; idempotent

  const wire::Lease& lease() const { return lease_; }
  HostStats stats() const;

 private:
  JobHost(std::unique_ptr<link::Link> link, std::unique_ptr<ControlConnection> control);

  void run();
  void take_expectations();
  void publish();
  void fail(const Error& error);
  void sleep();

  // Of the progress thread.
  std::unique_ptr<link::Link> link_;
  std::unique_ptr<ControlConnection> control_;
  wire::Lease lease_;
  HostPath path_;
  Wakeup wakeup_;

  // Shared with callers, under mutex_.
  mutable std::mutex mutex_;
  struct Expectation {
    Ticket ticket;
    std::uint64_t chunks;
  };
  std::deque<Expectation> expected_;
  std::optional<Error> failure_;
  bool is_closing_ = false;
  HostStats stats_;

  Completions completions_;
  std::thread thread_;
};

}  // namespace netfold::engine

// What runs collectives for a rank, wherever it runs them: in the caller's thread, in a thread of its own, in an
// agent's process or in hardware. The calls made most come first.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "group/collective_request.h"
#include "group/completions.h"

namespace netfold::group {

class Group {
 public:
  using Ticket = Completions::Ticket;

  virtual ~Group() = default;

  // Submits and returns when it is over; the group's own timeout bounds that.
  virtual Result<void> run(const CollectiveRequest& request) = 0;

  // Returns at once. kInvalidArgument if the request makes no sense; a failed group shows at the ticket. Every rank
  // submits the same collectives in the same order.
  virtual Result<Ticket> submit(const CollectiveRequest& request) = 0;
  // As submit, by a caller that waits for the ticket next: it may do the work itself there, so nobody is woken for it,
  // and next_completion() does not report it.
  virtual Result<Ticket> submit_awaited(const CollectiveRequest& request) = 0;

  // A ticket is taken by exactly one of these two. Empty if nothing is finished within `timeout`; the second returns
  // empty at once when the group has been closed and everything was taken.
  virtual std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) = 0;
  virtual std::optional<Completion> next_completion(Nanoseconds timeout) = 0;

  // How long a collective may make no progress, from now on.
  virtual void set_timeout(Nanoseconds timeout) = 0;

  // Leaves the job. Unfinished collectives complete with an error. `error`, if there is one, is told to the others.
  // May be called by several threads, and again.
  virtual void close(std::optional<Error> error = std::nullopt) = 0;

  // Counters by name; among them "cpu_s", the CPU seconds that collectives have cost beside the callers' threads.
  virtual nlohmann::json counters() const = 0;
};

}  // namespace netfold::group

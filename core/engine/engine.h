// What runs collectives, wherever it runs: in the caller's thread, in a thread of its own, or in an agent's process.
// The calls made most come first.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "engine/all_reduce.h"
#include "engine/collective/plans.h"
#include "engine/completions.h"

namespace netfold::engine {

class Engine {
 public:
  using Ticket = Completions::Ticket;

  virtual ~Engine() = default;

  // Submits and returns when it is over; the engine's own timeout bounds that.
  virtual Result<void> run(const AllReduce& request, const CollectiveOptions& how = {}) {
    const auto ticket = submit_awaited(request, how);
    return ticket ? finish(*ticket) : tl::unexpected(ticket.error());
  }

  // Returns at once. kInvalidArgument if the request makes no sense; a failed engine shows at the ticket. Every rank
  // submits the same collectives in the same order. `how` matters to host algorithms alone.
  Result<Ticket> submit(const AllReduce& request, const CollectiveOptions& how = {}) {
    return hand_over(request, how, false);
  }
  // As submit, by a caller that waits for the ticket next: it may do the work itself there, so nobody is woken for it,
  // and next_completion() does not report it.
  Result<Ticket> submit_awaited(const AllReduce& request, const CollectiveOptions& how = {}) {
    return hand_over(request, how, true);
  }

  // A ticket is taken by exactly one of these two. Empty if nothing is finished within `timeout`; the second returns
  // empty at once when the engine has been closed and everything was taken.
  virtual std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout) = 0;
  virtual std::optional<Completion> next_completion(Nanoseconds timeout) = 0;

  // Leaves the job. Unfinished collectives complete with an error. `error`, if there is one, is told to the others.
  virtual void close(std::optional<Error> error = std::nullopt) = 0;

  // Counters by name; among them "cpu_s", the CPU seconds that collectives have cost beside the callers' threads.
  virtual nlohmann::json counters() const = 0;

 protected:
  // Waits until what was submitted is over.
  Result<void> finish(Ticket ticket) {
    for (;;) {
      const auto completion = wait(ticket, kPeriod);
      if (completion && completion->error) return tl::unexpected(*completion->error);
      if (completion) return {};
    }
  }

 private:
  static constexpr Nanoseconds kPeriod = 1000 * kSecond;  // nothing hangs on it

  virtual Result<Ticket> hand_over(const AllReduce& request, const CollectiveOptions& how, bool is_awaited) = 0;
};

}  // namespace netfold::engine

// One backend's state machine: what a rank does to take part in collectives, over links that it is given. A session
// starts no thread, opens no socket and reads no clock. The driver (driver.h) runs it over sockets in real time; the
// simulated cluster (core/testing) runs it over simulated links in virtual time.
//
// The driver calls a session from one thread at a time. Only prepare() may be called beside that, also from one thread
// at a time.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "group/collective_request.h"

namespace netfold::group {

using Ticket = std::uint64_t;

// Of a busy rank: between two looks at what is overdue and at what the others say.
constexpr Nanoseconds kLookPeriod = 20 * kMillisecond;

// What prepare() worked out for submit(); each backend has its own.
struct Prepared {
  virtual ~Prepared() = default;
};

// The error of a rank that waited in vain for another one.
Error silent_rank(int silent, int rank, Nanoseconds waited);

class Session {
 public:
  virtual ~Session() = default;

  // Hot calls first.

  // Moves data and nothing else: for the moments between two pumps, when reading the clock would take longer than the
  // work. True if anything moved. An error is final: the driver calls abort() next.
  virtual Result<bool> move() { return false; }
  // Does everything that can be done at `now`: moves data, listens to the others, looks at what is overdue. True if
  // anything moved. An error is final, as above.
  virtual Result<bool> pump(Nanoseconds now) = 0;
  // The next request, in the order in which all ranks submit, with what prepare() made of it.
  virtual void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) = 0;
  // Tickets of requests that are done, each once.
  virtual std::vector<Ticket> take_finished() = 0;
  // No request is unfinished.
  virtual bool is_idle() const = 0;

  // kInvalidArgument for a request that makes no sense or that this backend does not serve. It touches nothing that the
  // other calls use.
  virtual Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) = 0;
  // Nothing but move() is needed to finish such a request, as a rule, and nobody awaits word from this rank: the driver
  // may run it without looking at the clock.
  virtual bool is_quick(const CollectiveRequest&) const { return false; }

  // Gives up: puts every unfinished tensor back as it was and returns their tickets, oldest first. The others are told,
  // if they do not know yet. After this only leave() and counters() are called.
  virtual std::vector<Ticket> abort(const Error& error, Nanoseconds now) = 0;
  // Says goodbye, with the error if there is one. The driver calls it again, at deadline() or when something comes,
  // until it returns true: nothing is left to say, or too much time has passed.
  virtual bool leave(const std::optional<Error>& error, Nanoseconds now) = 0;

  // How long a collective may make no progress, from now on. A backend whose limit is elsewhere keeps it.
  virtual void set_timeout(Nanoseconds) {}

  // When pump() (or leave()) must be called again, although nothing came.
  virtual Nanoseconds deadline() const = 0;
  // Before the driver sleeps: asks the others to wake it. False if there is news already.
  virtual bool arm() { return true; }
  // Adds what becomes ready when there is news. The driver hands them back, with what became ready, after its sleep.
  virtual void add_polls(std::vector<pollfd>& polls) const = 0;
  virtual void on_wake(std::span<const pollfd>) {}
  // Readable when a peer has word for this rank while it is idle; -1 for none.
  virtual int life_line() const { return -1; }
  // Data is still here that others wait for.
  virtual bool has_unsent() const { return false; }

  // Where all ranks of this machine run, by rank, as far as they have said so. `core` is where this one does. Empty if
  // ranks do not tell each other.
  virtual std::span<const int> share_core(int /*core*/) { return {}; }

  // Counters by name, for people and metrics.
  virtual nlohmann::json counters() const = 0;
};

}  // namespace netfold::group

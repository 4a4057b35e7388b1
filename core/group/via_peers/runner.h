// A runner carries collectives out. A rank may have several, one for each way of moving data. The driver of the rank
// drives each.
//
// A runner starts no thread, reads no clock and waits for nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace netfold::group {

class Runner {
 public:
  using Ticket = std::uint64_t;

  virtual ~Runner() = default;

  // Moves what can be moved; true if anything was. An error is final: then abandon().
  virtual Result<bool> pump() = 0;
  virtual bool is_idle() const = 0;

  // Before sleeping: asks whomever something waits for to wake us. False if there is news already.
  virtual bool arm() = 0;

  virtual std::vector<Ticket> take_finished() = 0;
  // Puts every unfinished tensor back as it was and returns their tickets, oldest first.
  virtual std::vector<Ticket> abandon() = 0;

  // Whom the oldest collective waits for: every one of them must move before it can end.
  virtual std::vector<int> blocking_ranks() const = 0;
  // Whether anything at all waits for this one.
  virtual bool waits_for(int rank) const = 0;
  virtual std::uint64_t reduced_elements() const = 0;
};

}  // namespace netfold::group

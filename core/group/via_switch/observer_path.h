// The data path of a job's host: tensors it expects in, questions out over a link, answers in, completed tensors out.
// Driven as stream.h is: by AggregationObserver's thread with real time, by the simulations of tests/protocol in
// virtual time.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "group/via_switch/observer_watch.h"
#include "link/link.h"
#include "wire/lease.h"

namespace netfold::group {

struct ObserverStats {
  std::uint64_t questions = 0, signals = 0, dropped_packets = 0;
};

class ObserverPath {
 public:
  using Ticket = std::uint64_t;

  // `link` must outlive it; `shards` are the switch's data addresses.
  ObserverPath(const wire::Lease& lease, link::Link& link, std::vector<link::Address> shards)
      : lease_(lease), link_(link), shards_(std::move(shards)), watch_(lease) {}

  void expect(Ticket ticket, std::uint64_t chunks, Nanoseconds now);
  void pump(Nanoseconds now);
  Nanoseconds deadline() const { return watch_.deadline(); }
  bool is_idle() const { return watch_.is_idle(); }

  std::vector<Ticket> take_finished() { return std::exchange(finished_, {}); }
  std::deque<Ticket> abandon() { return std::exchange(waiting_, {}); }  // what is not finished, oldest first
  const ObserverStats& stats() const { return stats_; }

 private:
  void handle(const link::Incoming& datagram, Nanoseconds now);

  wire::Lease lease_;
  link::Link& link_;
  std::vector<link::Address> shards_;
  ObserverWatch watch_;
  std::deque<Ticket> waiting_;
  std::vector<Ticket> finished_;
  ObserverStats stats_;
};

}  // namespace netfold::group

// The data path of a job's host: tensors it expects in, questions out over a link, answers in, completed tensors out.
// Driven as stream.h is: by JobHost's thread with real time, by the simulations of tests/protocol in virtual time.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "link/link.h"
#include "session/host_watch.h"
#include "wire/lease.h"

namespace netfold::engine {

struct HostStats {
  std::uint64_t questions = 0, signals = 0, dropped_packets = 0;
};

class HostPath {
 public:
  using Ticket = std::uint64_t;

  // `link` must outlive it; `shards` are the switch's data addresses.
  HostPath(const wire::Lease& lease, link::Link& link, std::vector<link::Address> shards)
      : lease_(lease), link_(link), shards_(std::move(shards)), watch_(lease) {}

  void expect(Ticket ticket, std::uint64_t chunks, Nanoseconds now);
  void pump(Nanoseconds now);
  Nanoseconds deadline() const { return watch_.deadline(); }

  std::vector<Ticket> take_finished() { return std::exchange(finished_, {}); }
  std::deque<Ticket> abandon() { return std::exchange(waiting_, {}); }  // what is not finished, oldest first
  const HostStats& stats() const { return stats_; }

 private:
  void handle(const link::Incoming& datagram, Nanoseconds now);

  wire::Lease lease_;
  link::Link& link_;
  std::vector<link::Address> shards_;
  session::HostWatch watch_;
  std::deque<Ticket> waiting_;
  std::vector<Ticket> finished_;
  HostStats stats_;
};

}  // namespace netfold::engine

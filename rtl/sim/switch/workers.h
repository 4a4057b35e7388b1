// Workers of one job at line rate, each as its RDMA NIC would be: messages to the right neighbour, an acknowledgement
// for each whole message from the left one, at most four messages on their way. Nothing is lost here; what came in and
// went out is timed.
//
// With lag 4 this is an all-reduce through the folding switch: message m + 4 goes once the sum of message m is here.
// With lag K it is a ring all-reduce whose segments have K messages each: what came in one step is sent on in the next,
// a message at a time or, stepwise, once all of it is here (Fig. 3 of the paper; MPI's rings).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "switch/job.h"
#include "switch/latencies.h"

namespace netfold::rtl {

struct WorkersOptions {
  std::uint32_t messages = 4;  // that each worker sends
  std::uint32_t lag = wire::roce::kWindowMessages;
  bool is_stepwise = false;
  Ticks host_time = 0;  // from a message's last packet until what waits for it may be sent: the NIC's and the host's
  // Besides, for every so many contributions (0: none): a plain frame to the port after next, of so many bytes; and a
  // contribution that was answered already, once more.
  std::uint32_t plain_every = 0, repeat_every = 0;
  std::size_t plain_bytes = 1094;
  bool acknowledges = true;  // else neighbours know by themselves what has come: cables carry contributions alone
  double load = 1;           // of the line, by random pauses between frames
  std::uint64_t seed = 1;
};

class Workers {
 public:
  Workers(const Job& job, const WorkersOptions& options);

  std::optional<Bytes> next(unsigned rank, Ticks now);   // its cable is free
  void entered(unsigned rank, const TimedFrame& frame);  // what it sent is in the switch
  bool arrived(unsigned rank, const TimedFrame& frame);  // something came to it: true if it is a contribution or sum
  bool has_sent_all() const;                             // one of them at least
  bool is_done() const;                                  // all has come, and was acknowledged
  std::uint64_t packets_a_worker() const { return packets_; }  // of the whole job
  Ticks last_arrival() const { return last_arrival_; }         // of a contribution or sum
  std::uint64_t unexpected() const { return unexpected_; }     // frames that came and that nobody waited for
  std::uint64_t reordered() const { return reordered_; }       // sums that overtook another: a NIC would ask again
  std::uint64_t unanswered() const;                            // frames that came again, so far
  std::string progress() const;

  // Of frames of each kind: from the first beat in, of the last contribution, to the first beat out.
  const Latencies& folds() const { return folds_; }
  const Latencies& repeats() const { return repeats_; }
  const Latencies& forwards() const { return forwards_; }

 private:
  struct Sent {  // and not yet in the switch
    enum class Kind : std::uint8_t { kContribution, kRepeat, kPlain, kOther } kind;
    std::uint64_t position;
  };
  struct Worker {
    std::uint64_t next = 0, received = 0;               // positions: packets from the job's beginning
    std::uint32_t acknowledged = 0, acknowledging = 0;  // messages
    std::uint32_t known = 0;                            // messages that its host has heard of
    std::deque<Ticks> hears_at;                         // of the next ones
    std::uint64_t turns = 0;
    Ticks not_before = 0;
    std::deque<Sent> sent;
    std::set<std::uint64_t> ahead;                      // positions that came before one below them
    std::unordered_map<std::uint64_t, Ticks> repeated;  // by position: when its first beat came in
  };

  bool may_send(Worker& worker, Ticks now) const;
  std::optional<std::uint64_t> repeatable(const Worker& worker, const Worker& right);
  Bytes contribution(unsigned rank, std::uint64_t position) const;
  void on_sum(unsigned rank, std::uint64_t position, const TimedFrame& frame);

  const Job& job_;
  WorkersOptions options_;
  Prng prng_;
  std::uint64_t packets_;
  std::vector<Worker> workers_;
  std::unordered_map<std::uint64_t, Ticks> last_in_;   // by position: the first beat of the last contribution so far
  std::unordered_map<std::uint64_t, Ticks> plain_in_;  // by what is written in it
  std::uint64_t plain_sent_ = 0, unexpected_ = 0, reordered_ = 0;
  Ticks last_arrival_ = 0;
  Latencies folds_, repeats_, forwards_;
};

}  // namespace netfold::rtl

// Workers of one job at line rate, each like an RDMA NIC. It sends messages to the right neighbour, and an
// acknowledgement for each whole message from the left one. At most four messages are in flight. No frame is lost;
// arriving and leaving frames are timed.
//
// With lag 4 this is an all-reduce through the folding switch: message m + 4 is sent when the sum of message m has
// arrived. With lag K it is a ring all-reduce whose segments have K messages each. The messages of a step are forwarded
// in the next step, one at a time or, stepwise, when all have arrived (Fig. 3 of the paper; MPI's rings).
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
  Ticks host_time = 0;  // from a message's last packet until the message that depends on it may be sent: the NIC's and
                        // the host's time
  // After this number of contributions (0: never): a plain frame of this size to the port after next; and the
  // repetition of a contribution that was answered already.
  std::uint32_t plain_every = 0, repeat_every = 0;
  std::size_t plain_bytes = 1094;
  bool acknowledges = true;  // else neighbours know the arrivals directly, and cables carry only contributions
  double load = 1;           // of the line, by random pauses between frames
  std::uint64_t seed = 1;
};

class Workers {
 public:
  Workers(const Job& job, const WorkersOptions& options);

  std::optional<Bytes> next(unsigned rank, Ticks now);         // its cable is free
  void entered(unsigned rank, const TimedFrame& frame);        // its frame is in the switch
  bool arrived(unsigned rank, const TimedFrame& frame);        // a frame arrived: true for a contribution or sum
  bool has_sent_all() const;                                   // at least one worker has
  bool is_done() const;                                        // all messages have arrived and are acknowledged
  std::uint64_t packets_a_worker() const { return packets_; }  // of the whole job
  Ticks last_arrival() const { return last_arrival_; }         // of a contribution or sum
  std::uint64_t unexpected() const { return unexpected_; }     // frames that no worker expected
  std::uint64_t reordered() const { return reordered_; }  // sums that overtook another: a NIC would request them again
  std::uint64_t unanswered() const;                       // frames that came again, so far
  std::string progress() const;

  // Latencies of frames of each kind: from the first beat in, of the last contribution, to the first beat out.
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
    std::uint32_t known = 0;                            // messages that its host knows of
    std::deque<Ticks> hears_at;                         // of the next ones
    std::uint64_t turns = 0;
    Ticks not_before = 0;
    std::deque<Sent> sent;
    std::set<std::uint64_t> ahead;                      // positions that arrived before a lower one
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
  std::unordered_map<std::uint64_t, Ticks> plain_in_;  // by the number in the frame
  std::uint64_t plain_sent_ = 0, unexpected_ = 0, reordered_ = 0;
  Ticks last_arrival_ = 0;
  Latencies folds_, repeats_, forwards_;
};

}  // namespace netfold::rtl

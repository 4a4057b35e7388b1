// The worker's window over the chunks of one epoch: which chunk to send, probe or send again, and when.
// A pure state machine: results and time in, transmissions and a deadline out.
//
// Words. A *position* counts chunks in 64 bits, from the lease's first chunk on; its low 32 bits are the chunk number
// on the wire, so positions never wrap though chunk numbers do. Positions below `base` are done. From base to `next`
// chunks are sent, some done already (results may overtake each other); from next to `end` they wait to be sent. At
// most `window` are outstanding (sent, not done; congestion_window.h says how many), and never more than `slots` ahead
// of base, because a slot is free for its next chunk only when its result has come.
//
// Loss. A late result is far more often another worker's late contribution than a loss of ours, so a late chunk is
// *probed* (a header without elements) and sent again only if the switch says it is missing. A chunk is late when 8
// chunks of its shard that were sent after it are done (fewer if the window is small); a retransmission is watched in
// the same way, so that losing it costs a round trip and no more. When nothing at all comes back for a time-out
// (measured round trip and its variation, doubled at each try), the oldest chunk is probed, then the two oldest, the
// four oldest, ... Most silences are a worker that computes, and must not make the others flood the switch.
//
// Repetitions have a window of their own, of the same size, and the oldest goes first. After a burst of losses a burst
// of repetitions would be lost as well, and a chunk is of use only when all ranks have repeated it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "group/via_switch/congestion_window.h"
#include "group/via_switch/granted_rate.h"
#include "group/via_switch/path_delay.h"
#include "wire/lease.h"
#include "wire/packet.h"

namespace netfold::group {

struct WindowOptions {
  std::uint32_t window_chunks = 0;  // most outstanding chunks; 0: a quarter of the slots
  std::uint32_t start_chunks = 0;   // outstanding at most until results come; 0: all ranks together kStartTogether
  Nanoseconds timeout_min = 5 * kMillisecond;
  Nanoseconds timeout_start = 50 * kMillisecond;  // until a round trip was measured
  Nanoseconds timeout_max = 200 * kMillisecond;
};

struct WindowStats {
  std::uint64_t sent_chunks = 0, resent_chunks = 0, probes = 0, duplicate_results = 0, echoes = 0, shrinks = 0;
  Nanoseconds round_trip = 0;       // smoothed
  std::uint32_t window_chunks = 0;  // now
};

class Window {
 public:
  using Position = std::uint64_t;
  struct Transmission {
    Position position;
    wire::Kind kind;  // contribution, probe or echo
  };

  Window(const wire::Lease& lease, WindowOptions options);

  // The stream grows: positions end() .. end()+chunks may be sent.
  void extend(std::uint64_t chunks, Nanoseconds now);

  // The next packet to transmit, if there is one; it counts as transmitted at `now`.
  std::optional<Transmission> next(Nanoseconds now);
  // To be called once all that has come was handed over: acts if the deadline has passed.
  void on_time(Nanoseconds now);

  // Where a chunk number of a received packet lies, if it is one of the outstanding window.
  std::optional<Position> position_of(std::uint32_t chunk) const;
  // True if the result is news: the caller then stores it. False: a duplicate. `direction`: of the chunk.
  bool on_result(Position position, Nanoseconds now, Direction direction = Direction::kBoth);
  void on_missing(Position position, Nanoseconds now);
  void on_echo(std::uint32_t chunk, Nanoseconds now, std::uint16_t switch_time = 0);
  void on_waiting(Position position, std::uint16_t missing_rank, Nanoseconds now);

  // The job has had so many times its fair share of the switch's link.
  void give_way(double times, Nanoseconds now) { congestion_.give_way(times, delay_.queue(now)); }

  // Other traffic has more than is fair. This worker may send so much, though chunks are lost.
  void on_grant(double bytes_s, Nanoseconds now);

  // The other ranks wait for this one.
  void catch_up() { congestion_.catch_up(); }

  // When on_time() wants to be called though no packet came; kNever if nothing is outstanding.
  Nanoseconds deadline() const;

  // The longest that the switch is not asked about the oldest chunk, while that is outstanding.
  Nanoseconds probe_period_max() const { return options_.timeout_max; }

  // How many chunks were sent after this one.
  std::uint64_t sent_after(Position position) const { return next_ - position - 1; }

  Position base() const { return base_; }
  Position end() const { return end_; }
  // The first position that was not sent yet, and how many before it are done.
  Position next_new() const { return next_; }
  std::uint64_t done() const { return next_ - outstanding_; }
  std::uint32_t window_chunks() const { return congestion_.chunks(); }
  bool is_idle() const { return base_ == end_; }
  bool is_done(Position position) const {
    return position < base_ || (position < next_ && chunks_[position & (chunks_.size() - 1)].is_done);
  }
  Nanoseconds last_progress() const { return last_progress_; }  // last new result, or the end of idleness
  // When the switch last answered about the oldest chunk, since that became the oldest (kNever: it has not), and the
  // rank that it named then.
  Nanoseconds answered_at() const { return answered_at_; }
  std::optional<std::uint16_t> missing_rank() const { return missing_rank_; }
  void forget_missing_rank() { missing_rank_.reset(); }  // until the switch says it again
  WindowStats stats() const;

 private:
  struct Chunk {
    Nanoseconds sent = 0;       // last time the elements were sent
    Position overtaken_at = 0;  // after a retransmission: a done position from here on has overtaken it
    std::uint8_t tries = 0;     // probes and resends so far
    bool is_done = false;
    bool is_queued = false;        // in probes_
    bool was_missing = false;      // the switch has said so
    bool waits_to_repeat = false;  // in repeats_
    bool is_repeated = false;      // its elements are on their way once more, as far as is known
  };

  Chunk& at(Position position) { return chunks_[position & (chunks_.size() - 1)]; }
  Nanoseconds timeout() const;
  void queue_probe(Position position);
  void probe_silent();
  void end_repeat(Chunk& chunk);
  std::optional<Transmission> next_probe();
  std::optional<Transmission> next_repeat(Nanoseconds now);
  Position slack() const;
  void queue_overtaken(Position done, Queue queue);
  void watch_again(Position position);
  void measure(Nanoseconds round_trip);
  void advance_base();

  wire::Lease lease_;
  WindowOptions options_;
  std::vector<Chunk> chunks_;      // by position modulo slots
  std::vector<Position> probes_;   // a stack is enough: these are few
  std::vector<Position> repeats_;  // a heap, the least on top: chunks to be sent again
  std::uint32_t repeated_ = 0;     // chunks with is_repeated
  Position base_ = 0, next_ = 0, end_ = 0;
  std::vector<Position> overtaken_;             // by shard: positions before this one were looked at for overtaking
  std::vector<Position> retried_;               // retransmitted and watched
  Position retried_overtaken_at_ = UINT64_MAX;  // the least overtaken_at among them
  std::uint64_t outstanding_ = 0;
  bool is_full_ = false;  // a chunk could not be sent because of the window, when sending was last tried
  CongestionWindow congestion_;
  GrantedRate granted_;
  PathDelay delay_;
  Nanoseconds timer_ = kNever;
  std::uint32_t silences_ = 0;  // time-outs since the last new result
  // Outstanding at the last time-out, and not probed since. Once an echo has come back, every result that the switch
  // had sent before is here or lost. So each echo sends twice as many probes as the one before. Many results that
  // are lost at the end of a tensor then do not cost a time-out each. Results that are only late are not asked for.
  Position silent_from_ = 0, silent_to_ = 0;
  std::uint32_t silent_probes_ = 0;
  bool wants_echo_ = false;
  Nanoseconds round_trip_ = 0, variation_ = 0;
  Nanoseconds last_progress_ = 0;
  Nanoseconds answered_at_ = kNever;
  std::optional<std::uint16_t> missing_rank_;
  WindowStats stats_;
};

}  // namespace netfold::group

// How many chunks a worker may have outstanding: about as many as the narrowest link on the way carries.
// A pure state machine: results and losses go in, a window comes out.
//
// The workers of a job meet at the switch, so the sum of their windows fills the queue in front of the switch's link
// (incast). The window starts small and doubles once a round trip, until most of a round trip is queueing. Then it
// grows by single chunks, until chunks are lost while the queue is long: it shrinks, and grows by single chunks again.
//
// Loss that is not congestion must not shrink the window. It is as frequent while the queue is short as while it is
// long, and loss by congestion is not. So losses at a short queue say how much loss the path has of its own; so many,
// and as many again, are tolerated at a long one. path_delay.h says how long the queue is. Where it cannot tell,
// because the least round trip that it knows holds queueing too, many own chunks lost in one window say it as well.
// Then the window shrinks to what was not lost: a link that has become much slower is met at once.
//
// Growth is slow, because each growth beyond what the link carries loses a chunk: at most one chunk in kResultsPerStep,
// so that far below 2% of all chunks are sent twice. After a while without loss the steps get longer, so that a link
// that has become faster is found again.
//
// Windows that grow so slowly become alike slowly. So the switch says which jobs have more of its link than is fair
// (switch/fair_shares.h), and these give some of it back. And it says for which rank a job waits (switch/late_ranks.h):
// that one's window is smaller than those of the others, and grows faster then.
//
// A reduce-scatter fills the queue on the way up, an all-gather that on the way down, and a worker may run both, each
// in a stream of its own. The packets that one of them sends the other way wait there behind the other's many. So both
// have the same round trip, and the shares of their links are as their windows: a stream whose window has shrunk loses
// rate to the other one's queue. A window of such a stream (`Direction`) therefore follows the queue of its own
// direction only, and grows fast while few of its chunks are in it. Where a switch does not tell the directions apart,
// a long round trip does not say that the window is large enough: it starts until a loss.
//
// Source: slow start and multiplicative decrease, RFC 5681; the queue as window times the queueing part of the round
// trip, TCP Vegas (Brakmo and Peterson 1994).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "group/via_switch/path_delay.h"

namespace netfold::group {

// Whether a larger window would have sent more, and sooner. Results come in batches, and only the first result of a
// batch finds the window full.
enum class Filled : std::uint8_t { kNot, kBefore, kUntilNow };

class CongestionWindow {
 public:
  using Position = std::uint64_t;

  CongestionWindow(std::uint32_t start, std::uint32_t most)
      : window_(std::min(start, most)), least_(std::min(kLeast, most)), most_(most) {}

  std::uint32_t chunks() const { return window_; }
  std::uint64_t shrinks() const { return shrinks_; }

  // One more chunk is done.
  void on_result(Filled filled, Queue queue, Direction direction = Direction::kBoth) {
    if (++results_in_round_ >= std::max(window_, kRoundLeast)) results_in_round_ = missing_in_round_ = 0;
    if (!queue.is_long) own_loss_ -= own_loss_ / kLossMemory;
    tolerated_ = std::min(kToleratedMost, tolerated_ + 2 * own_loss_);
    if (filled == Filled::kNot || window_ >= most_) return;
    if (catches_up_by_ > 0) {
      --catches_up_by_;
      ++window_;
      return;
    }
    const double queued = window_ * queue.queueing;  // chunks
    const bool is_one_way = direction != Direction::kBoth;
    if (queue.is_built && queue.is_known && (!is_one_way || queued >= kQueuedFew)) is_starting_ = false;
    const bool is_fast =
        !is_starting_ && is_one_way && queue.is_known && queued < (queue.is_short ? kQueuedFew : kQueuedFew / 2);
    if (filled == Filled::kBefore && !is_fast) return;
    if (is_starting_) {
      ++window_;
      return;
    }
    if (++results_ < (is_fast ? kResultsPerFastStep : std::max(window_, kResultsPerStep))) return;
    results_ = 0;
    window_ = is_fast ? window_ + 1 : std::min(most_, window_ + 1 + steps_++ / kStepsUntilLonger);
  }

  // A chunk that was overtaken, of this worker or of another one. `next` is the first chunk that was not sent yet.
  void on_loss(Position position, Position next, Queue queue) {
    if (position < recovered_from_) return;  // sent before the windows shrank: known already
    if (!queue.is_long) {
      own_loss_ += 1 / kLossMemory;
    } else if (tolerated_ >= 1) {
      tolerated_ -= 1;
    } else if (window_ * queue.queueing >= kQueuedLeast) {
      // All ranks hear of it now. One of them, with a larger window, may have lost more chunks by then.
      shrink(std::max(next, position + std::min(2 * window_, most_)));
    }
  }

  // The switch says, for the first time, that it does not have this worker's own chunk.
  void on_missing(Position position, Position next) {
    if (position >= recovered_from_) {
      if (++missing_in_round_ * 8 <= std::max(window_, kRoundLeast)) return;
      const std::uint32_t missing = missing_in_round_;
      shrink(next);
      missing_before_ = missing;
    } else {
      ++missing_before_;
    }
    window_ = std::min(window_, smaller(window_before_ - std::min(missing_before_, window_before_)));
  }

  // The switch says that the job has so many times its fair share of the link. While half of a round trip is queueing,
  // the link stays busy without a quarter of what is on its way.
  void give_way(double times, Queue queue) {
    if (queue.queueing < 0.5) return;
    const double smaller = window_ / std::clamp(times, 1.0, kGivenAtOnce);
    window_ = std::max(least_, static_cast<std::uint32_t>(std::lround(smaller)));
    is_starting_ = false;
    results_ = steps_ = 0;
  }

  // The window stays at least as large, whatever is lost; 0: no longer.
  void hold_at_least(std::uint32_t chunks) {
    held_ = std::min(chunks, most_);
    window_ = std::max(window_, held_);
  }

  // The switch says that the other ranks wait for this one: their windows are larger, and the job cannot use them.
  void catch_up() { catches_up_by_ = std::max(1u, window_ / kCaughtUpPart); }

 private:
  static constexpr std::uint32_t kCaughtUpPart = 16;
  static constexpr double kGivenAtOnce = 4.0 / 3;
  static constexpr std::uint32_t kLeast = 2;  // one is on the way up while the other comes back
  static constexpr double kQueuedLeast = 2;
  static constexpr std::uint32_t kRoundLeast = 64;  // results; of fewer, a loss by chance would be a large part
  static constexpr std::uint32_t kResultsPerStep = 100;
  static constexpr std::uint32_t kStepsUntilLonger = 4;
  // Of a stream in one direction: an eighth more a round trip while fewer of its chunks are in its queue.
  static constexpr std::uint32_t kResultsPerFastStep = 8;
  static constexpr double kQueuedFew = 16;
  static constexpr double kLossMemory = 256;  // results
  static constexpr double kToleratedMost = 4;

  std::uint32_t smaller(std::uint32_t window) const { return std::max({least_, held_, window * 7 / 10}); }

  void shrink(Position recovered_from) {
    window_before_ = window_;
    missing_before_ = 0;
    window_ = smaller(window_);
    is_starting_ = false;
    recovered_from_ = recovered_from;
    results_ = steps_ = catches_up_by_ = 0;
    results_in_round_ = missing_in_round_ = 0;
    ++shrinks_;
  }

  std::uint32_t window_, least_, most_, held_ = 0;
  bool is_starting_ = true;
  Position recovered_from_ = 0;            // chunks before this one were sent before the windows last shrank
  double own_loss_ = 0;                    // losses a result while the queue is short
  double tolerated_ = 0;                   // losses at a long queue
  std::uint32_t results_ = 0, steps_ = 0;  // since the window last grew, and growths since it last shrank
  std::uint32_t catches_up_by_ = 0;        // chunks
  std::uint32_t results_in_round_ = 0, missing_in_round_ = 0;
  std::uint32_t window_before_ = 0, missing_before_ = 0;  // the window that last shrank, and what was missing of it
  std::uint64_t shrinks_ = 0;
};

}  // namespace netfold::group

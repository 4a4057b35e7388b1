// How long a worker's packets queue on their way to the switch and back. The round trip of a chunk does not tell: it
// also holds the time in which the switch waits for other ranks. So the worker now and then sends an *echo*, a header
// that the switch returns at once and that queues behind the worker's own chunks.
// A pure state machine: echoes and time go in, what is known of the queues comes out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace netfold::group {

struct Queue {
  double queueing = 0;    // the part of a round trip that is spent in queues, from 0 (none) to 1
  bool is_long = false;   // nearer to the longest that was seen lately than to the shortest
  bool is_built = false;  // most of a round trip is queueing, and more of it than a busy processor causes
};

class PathDelay {
 public:
  // True if an echo should go now. Its sender then calls on_sent().
  bool wants_echo(Nanoseconds now) const {
    if (echo_) return now - echo_->sent > std::max(kLostAfterMin, 4 * latest_);
    if (echoes_ < kEchoesAtStart) return echoes_ == 0 || contributions_ > 0;
    return contributions_ >= kContributionsPerEcho && now - sent_ >= kPeriodLeast;
  }
  void on_sent(std::uint32_t chunk, Nanoseconds now) {
    echo_ = {chunk, now};
    sent_ = now;
    ++echoes_;
    contributions_ = 0;
  }
  void on_contribution() { ++contributions_; }

  // The round trip if this answers the echo that is on its way.
  std::optional<Nanoseconds> on_echo(std::uint32_t chunk, Nanoseconds now) {
    if (!echo_ || echo_->chunk != chunk) return std::nullopt;
    latest_ = std::max<Nanoseconds>(1, now - echo_->sent);
    echo_.reset();
    if (now - least_since_ > kLeastMemory) {
      least_ = {kNever, least_[0]};
      least_since_ = now;
    }
    if (now - most_since_ > kMostMemory) {
      most_ = {0, most_[0]};
      most_since_ = now;
    }
    least_[0] = std::min(least_[0], latest_);
    most_[0] = std::max(most_[0], latest_);
    return latest_;
  }

  Nanoseconds latest() const { return latest_; }  // round trip; 0: not known
  Nanoseconds least() const { return latest_ == 0 ? 0 : std::min(least_[0], least_[1]); }

  // The longest round trip of the last half second; without limit if none is known.
  Nanoseconds most() const { return latest_ == 0 ? kNever / 2 : std::max(most_[0], most_[1]); }

  Queue queue(Nanoseconds now) const {
    const Nanoseconds round_trip = at_least(now), queued = round_trip - least();
    if (latest_ == 0 || queued <= 0) return {};
    return {.queueing = static_cast<double>(queued) / static_cast<double>(round_trip),
            .is_long = queued > (most() - least()) / 2,
            .is_built = queued > std::max(3 * least(), kBuiltLeast)};
  }

 private:
  static constexpr std::uint32_t kEchoesAtStart = 8;          // as fast as they come back: nothing is known yet
  static constexpr std::uint32_t kContributionsPerEcho = 16;  // then: 0.24% of the bytes at an MTU of 1500
  static constexpr Nanoseconds kPeriodLeast = kMillisecond;   // on a fast path an echo costs more than it says
  static constexpr Nanoseconds kBuiltLeast = kMillisecond / 2;
  static constexpr Nanoseconds kLostAfterMin = 20 * kMillisecond;
  // How long the least and the longest round trips are remembered; up to twice as long.
  static constexpr Nanoseconds kLeastMemory = 15 * kSecond, kMostMemory = kSecond / 2;

  struct Echo {
    std::uint32_t chunk;
    Nanoseconds sent;
  };

  // An echo that has been away for longer than the last one counts already.
  Nanoseconds at_least(Nanoseconds now) const { return std::max(latest_, echo_ ? now - echo_->sent : 0); }

  std::optional<Echo> echo_;  // on its way
  std::uint64_t echoes_ = 0, contributions_ = 0;
  Nanoseconds sent_ = 0;
  Nanoseconds latest_ = 0, least_since_ = 0, most_since_ = 0;
  std::array<Nanoseconds, 2> least_{kNever, kNever}, most_{0, 0};  // in this period, and in the one before
};

}  // namespace netfold::group

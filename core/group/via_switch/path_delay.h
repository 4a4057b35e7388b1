// How long a worker's packets queue on their way to the switch and back. The round trip of a chunk does not tell: it
// also holds the time in which the switch waits for other ranks. So the worker now and then sends an *echo*, a header
// that the switch returns at once and that queues behind the worker's own chunks. The switch writes its own time into
// it, so the worker also learns how much longer than at best each of the two ways was.
// A pure state machine: echoes and time go in, what is known of the queues comes out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "wire/packet.h"

namespace netfold::group {

// Where the many bytes of a stream go: an all-reduce's both ways, a reduce-scatter's up to the switch, an all-gather's
// down from it.
enum class Direction : std::uint8_t { kBoth, kUp, kDown };

struct Queue {
  double queueing = 0;    // the part of a round trip that is spent in this queue, from 0 (none) to 1
  bool is_short = true;   // less than a third of the longest that was seen lately
  bool is_long = false;   // more than half of it
  bool is_built = false;  // most of a round trip is queueing, and more of it than a busy processor causes
  bool is_known = true;   // false: it may be the queue of the other direction
};

class PathDelay {
 public:
  // True if an echo should go now. Its sender then calls on_sent().
  bool wants_echo(Nanoseconds now) const {
    if (echo_) return now - echo_->sent > std::max(kLostAfterMin, 4 * latest_) << std::min(lost_, kLostDoublingsMost);
    if (echoes_ < kEchoesAtStart) return echoes_ == 0 || contributions_ > 0;
    return contributions_ >= kContributionsPerEcho && now - sent_ >= kPeriodLeast;
  }
  void on_sent(std::uint32_t chunk, Nanoseconds now) {
    if (echo_) {
      given_up_ = echo_->chunk;
      ++lost_;
    }
    echo_ = {chunk, now};
    sent_ = now;
    ++echoes_;
    contributions_ = 0;
  }
  void on_contribution() { ++contributions_; }

  // The time since it was sent if this answers the echo that is on its way. `switch_time`: wire::echo_time(), or 0.
  std::optional<Nanoseconds> on_echo(std::uint32_t chunk, Nanoseconds now, std::uint16_t switch_time = 0) {
    if (!echo_ || echo_->chunk != chunk) return std::nullopt;
    const Echo echo = *echo_;
    echo_.reset();
    lost_ = 0;
    const Nanoseconds round_trip = std::max<Nanoseconds>(1, now - echo.sent);
    // Karn: of two echoes with one number, either may be the one that is answered. And within one round of its caller
    // time stands still.
    if (chunk == given_up_ || now == echo.sent) return round_trip;
    latest_ = round_trip;
    forget(now);
    measure({latest_, up(echo.sent, switch_time)});
    return latest_;
  }

  Nanoseconds latest() const { return latest_; }  // round trip; 0: not known
  Nanoseconds least() const { return latest_ == 0 ? 0 : at_best().round_trip; }

  // The longest round trip of the last half second; without limit if none is known.
  Nanoseconds most() const { return latest_ == 0 ? kNever / 2 : most_of(Direction::kBoth); }

  Queue queue(Nanoseconds now, Direction direction = Direction::kBoth) const {
    const bool is_known = direction == Direction::kBoth || (up_ && at_best().up);
    if (!is_known) {
      Queue both = queue(now);
      both.is_known = false;
      return both;
    }
    const Nanoseconds round_trip = at_least(now), both = round_trip - least();
    if (latest_ == 0 || both <= 0) return {};
    const Nanoseconds best = at_best().of(direction), range = most_of(direction) - best;
    Nanoseconds queued = both;
    if (direction != Direction::kBoth) {
      queued = std::clamp<Nanoseconds>(Times{latest_, up_}.of(direction) - best, 0, both);
    }
    return {.queueing = static_cast<double>(queued) / static_cast<double>(round_trip),
            .is_short = queued <= range / 3,
            .is_long = queued > range / 2,
            .is_built = queued > std::max(3 * least(), kBuiltLeast)};
  }

 private:
  static constexpr std::uint32_t kEchoesAtStart = 8;          // as fast as they come back: nothing is known yet
  static constexpr std::uint32_t kContributionsPerEcho = 16;  // then: 0.24% of the bytes at an MTU of 1500
  static constexpr Nanoseconds kPeriodLeast = kMillisecond;   // on a fast path an echo costs more than it says
  static constexpr Nanoseconds kBuiltLeast = kMillisecond / 2;
  // An echo that is away for so long is lost, or the queue has become as long: the next one is given twice the time.
  static constexpr Nanoseconds kLostAfterMin = 20 * kMillisecond;
  static constexpr std::uint32_t kLostDoublingsMost = 5;
  // How long the least and the longest round trips are remembered; up to twice as long.
  static constexpr Nanoseconds kLeastMemory = 15 * kSecond, kMostMemory = kSecond / 2;

  struct Echo {
    std::uint32_t chunk;
    Nanoseconds sent;
  };
  // The way up took this long plus a time by which the two clocks differ: that is the same for all echoes.
  struct Times {
    Nanoseconds round_trip = kNever;
    std::optional<Nanoseconds> up;

    Nanoseconds of(Direction direction) const {  // there must be `up` where only one of the ways is asked for
      if (direction == Direction::kBoth) return round_trip;
      return direction == Direction::kUp ? *up : round_trip - *up;
    }
  };
  static constexpr std::array kDirections{Direction::kBoth, Direction::kUp, Direction::kDown};
  using Most = std::array<Nanoseconds, kDirections.size()>;  // by direction
  static constexpr Most kNone{0, -kNever, -kNever};

  // An echo that has been away for longer than the last one counts already.
  Nanoseconds at_least(Nanoseconds now) const { return std::max(latest_, echo_ ? now - echo_->sent : 0); }

  Nanoseconds most_of(Direction direction) const {
    const auto index = static_cast<std::size_t>(direction);
    return std::max(most_[0][index], most_[1][index]);
  }

  const Times& at_best() const { return least_[0].round_trip < least_[1].round_trip ? least_[0] : least_[1]; }

  void forget(Nanoseconds now) {
    if (now - least_since_ > 2 * kLeastMemory) {  // the clocks have drifted apart
      least_ = {};
      most_ = {kNone, kNone};
    }
    if (now - least_since_ > kLeastMemory) {
      least_ = {Times{}, least_[0]};
      least_since_ = now;
    }
    if (now - most_since_ > kMostMemory) {
      most_ = {kNone, most_[0]};
      most_since_ = now;
    }
  }

  // A round trip that is half of the range or longer does not say which of its rounds the time is of.
  std::optional<Nanoseconds> up(Nanoseconds sent, std::uint16_t switch_time) const {
    if (switch_time == 0 || latest_ >= wire::kEchoTimeRange / 2) return std::nullopt;
    const Nanoseconds before = at_best().up.value_or(0);
    return before + wire::echo_time_since(sent + before, switch_time);
  }

  void measure(Times times) {
    up_ = times.up;
    if (times.round_trip < least_[0].round_trip) least_[0] = times;
    for (const Direction direction : kDirections) {
      Nanoseconds& most = most_[0][static_cast<std::size_t>(direction)];
      if (direction == Direction::kBoth || times.up) most = std::max(most, times.of(direction));
    }
  }

  std::optional<Echo> echo_;               // on its way
  std::optional<std::uint32_t> given_up_;  // the chunk of the last one that was given up
  std::uint32_t lost_ = 0;                 // how many were, since the last answer
  std::uint64_t echoes_ = 0, contributions_ = 0;
  Nanoseconds sent_ = 0;
  Nanoseconds latest_ = 0, least_since_ = 0, most_since_ = 0;
  std::optional<Nanoseconds> up_;  // of the latest
  std::array<Times, 2> least_;     // in this period, and in the one before
  std::array<Most, 2> most_{kNone, kNone};
};

}  // namespace netfold::group

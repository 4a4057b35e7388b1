#include "group/via_switch/window.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <functional>
#include <utility>

namespace netfold::group {
namespace {

constexpr std::uint32_t kStartTogether = 32;  // 48 kB at an MTU of 1500: every queue has room for that
constexpr std::uint8_t kTriesCounted = 16;
constexpr std::uint32_t kWaitDoublingsMax = 10;
constexpr Nanoseconds kSkew = kMillisecond;  // of ranks that share a few cores: no sign of a slow link

WindowOptions filled_in(WindowOptions options, const wire::Lease& lease) {
  if (options.window_chunks == 0) options.window_chunks = lease.slots / 4;
  options.window_chunks = std::clamp<std::uint32_t>(options.window_chunks, 1, lease.slots);
  if (options.start_chunks == 0) options.start_chunks = std::max(2u, kStartTogether / lease.world);
  return options;
}

}  // namespace

Window::Window(const wire::Lease& lease, WindowOptions options)
    : lease_(lease),
      options_(filled_in(options, lease)),
      chunks_(lease.slots),
      overtaken_(lease.shards),
      congestion_(options_.start_chunks, options_.window_chunks) {
  assert(std::has_single_bit(lease.slots));
  probes_.reserve(lease.slots);
  repeats_.reserve(lease.slots);
  retried_.reserve(lease.slots);
  base_ = next_ = end_ = lease.first_chunk;
  for (std::uint16_t shard = 0; shard < lease.shards; ++shard) {
    overtaken_[shard] = base_ + (lease.first_chunk_of(shard) - lease.first_chunk);
  }
}

void Window::extend(std::uint64_t chunks, Nanoseconds now) {
  if (is_idle()) last_progress_ = now;
  end_ += chunks;
}

std::optional<Window::Transmission> Window::next_probe() {
  while (!probes_.empty()) {
    const Position position = probes_.back();
    probes_.pop_back();
    if (position < base_) continue;
    Chunk& chunk = at(position);
    if (chunk.is_done || !chunk.is_queued) continue;  // or its elements are to be sent again: they say more
    chunk.is_queued = false;
    if (chunk.tries < kTriesCounted) ++chunk.tries;
    watch_again(position);
    ++stats_.probes;
    return Transmission{position, wire::Kind::kProbe};
  }
  return std::nullopt;
}

std::optional<Window::Transmission> Window::next_repeat(Nanoseconds now) {
  while (!repeats_.empty() && repeated_ < congestion_.chunks()) {
    std::ranges::pop_heap(repeats_, std::greater{});
    const Position position = repeats_.back();
    repeats_.pop_back();
    if (position < base_ || at(position).is_done) continue;
    Chunk& chunk = at(position);
    chunk.waits_to_repeat = false;
    chunk.is_repeated = true;
    ++repeated_;
    if (chunk.tries < kTriesCounted) ++chunk.tries;
    watch_again(position);
    chunk.sent = now;
    ++stats_.resent_chunks;
    return Transmission{position, wire::Kind::kContribution};
  }
  return std::nullopt;
}

std::optional<Window::Transmission> Window::next(Nanoseconds now) {
  if (const auto probe = next_probe()) return probe;
  if (const auto repeat = next_repeat(now)) return repeat;
  if (delay_.wants_echo(now) || wants_echo_) {  // it carries the number of the chunk that it goes before
    wants_echo_ = false;
    delay_.on_sent(static_cast<std::uint32_t>(next_), now);
    ++stats_.echoes;
    return Transmission{next_, wire::Kind::kEcho};
  }
  const bool may_send = next_ < end_ && next_ < base_ + lease_.slots;
  is_full_ = may_send && outstanding_ >= congestion_.chunks();
  if (!may_send || is_full_) return std::nullopt;
  const Position position = next_++;
  at(position) = {.sent = now};
  if (outstanding_++ == 0) timer_ = now + timeout();
  ++stats_.sent_chunks;
  granted_.on_sent();
  delay_.on_contribution();
  return Transmission{position, wire::Kind::kContribution};
}

std::optional<Window::Position> Window::position_of(std::uint32_t chunk) const {
  const auto offset = static_cast<std::int32_t>(chunk - static_cast<std::uint32_t>(base_));
  if (offset < 0 || base_ + static_cast<std::uint32_t>(offset) >= next_) return std::nullopt;
  return base_ + static_cast<std::uint32_t>(offset);
}

bool Window::on_result(Position position, Nanoseconds now, Direction direction) {
  Chunk& chunk = at(position);
  if (chunk.is_done) {
    ++stats_.duplicate_results;
    return false;
  }
  chunk.is_done = true;
  end_repeat(chunk);
  // Where chunks are away for much longer than an echo, they wait for other ranks: a larger window would not help.
  const Queue queue = delay_.queue(now, direction);
  const Nanoseconds skew = queue.is_long ? 0 : kSkew;
  // The queue of another stream may grow faster than echoes tell.
  const bool waits_for_others =
      direction == Direction::kBoth && delay_.latest() > 0 && now - chunk.sent > 2 * delay_.latest() + skew;
  Filled filled = is_full_ ? Filled::kBefore : Filled::kNot;
  if (outstanding_ >= congestion_.chunks()) filled = Filled::kUntilNow;
  if (waits_for_others) filled = Filled::kNot;
  --outstanding_;
  if (chunk.tries == 0) measure(now - chunk.sent);  // Karn: an ambiguous round trip is not a measurement
  last_progress_ = now;
  silences_ = 0;
  timer_ = now + timeout();
  queue_overtaken(position, queue);
  if (position == base_) advance_base();
  congestion_.on_result(filled, queue, direction);
  return true;
}

void Window::on_missing(Position position, Nanoseconds now) {
  if (position == base_) answered_at_ = now;
  Chunk& chunk = at(position);
  if (chunk.is_done || chunk.waits_to_repeat) return;
  if (chunk.is_repeated && now - chunk.sent < delay_.least()) return;  // said before the repetition came
  granted_.on_missing(now);
  if (!chunk.was_missing) congestion_.on_missing(position, next_);
  chunk.was_missing = true;
  end_repeat(chunk);
  chunk.is_queued = false;
  chunk.waits_to_repeat = true;
  repeats_.push_back(position);
  std::ranges::push_heap(repeats_, std::greater{});
}

void Window::end_repeat(Chunk& chunk) {
  if (std::exchange(chunk.is_repeated, false)) --repeated_;
}

void Window::on_echo(std::uint32_t chunk, Nanoseconds now, std::uint16_t switch_time) {
  const auto round_trip = delay_.on_echo(chunk, now, switch_time);
  if (round_trip && round_trip_ == 0) measure(*round_trip);
  congestion_.hold_at_least(granted_.chunks(delay_.latest(), now));
  if (!round_trip || silent_from_ >= silent_to_) return;
  silent_probes_ *= 2;
  probe_silent();
}

void Window::on_grant(double bytes_s, Nanoseconds now) {
  granted_.on_grant(bytes_s / (lease_.payload_bytes + static_cast<double>(wire::kHeaderBytes)), now);
  congestion_.hold_at_least(granted_.chunks(delay_.latest(), now));
}

void Window::on_waiting(Position position, std::uint16_t missing_rank, Nanoseconds now) {
  end_repeat(at(position));
  if (position != base_) return;
  answered_at_ = now;
  missing_rank_ = missing_rank;
}

Nanoseconds Window::deadline() const {
  return outstanding_ == 0 ? kNever : timer_;
}

// A round trip of a chunk also holds the time in which it waits for other ranks; the switch answers a probe at once.
Nanoseconds Window::timeout() const {
  Nanoseconds once = options_.timeout_start;  // until a round trip was measured
  if (round_trip_ > 0) once = round_trip_ + 4 * variation_;
  once = std::min(once, 2 * delay_.most());
  once = std::max(options_.timeout_min, once);
  return std::min(options_.timeout_max, once << std::min(silences_, kWaitDoublingsMax));
}

void Window::on_time(Nanoseconds now) {
  if (outstanding_ == 0 || now < timer_) return;
  if (repeated_ > 0) {  // they were lost, too
    for (Position position = base_; position < next_; ++position) end_repeat(at(position));
  }
  silent_from_ = base_;
  silent_to_ = next_;
  silent_probes_ = 1u << std::min(silences_, kWaitDoublingsMax);
  probe_silent();
  ++silences_;
  timer_ = now + timeout();
}

void Window::probe_silent() {
  silent_from_ = std::max(silent_from_, base_);
  const std::size_t first = probes_.size();
  for (std::uint32_t probes = 0; silent_from_ < silent_to_ && probes < silent_probes_; ++silent_from_) {
    if (at(silent_from_).is_done) continue;
    queue_probe(silent_from_);
    ++probes;
  }
  std::reverse(probes_.begin() + static_cast<std::ptrdiff_t>(first), probes_.end());  // the oldest on top of the stack
  wants_echo_ = silent_from_ < silent_to_;
}

void Window::queue_probe(Position position) {
  Chunk& chunk = at(position);
  if (chunk.is_queued || chunk.waits_to_repeat) return;
  chunk.is_queued = true;
  probes_.push_back(position);
}

// In positions of one shard. With a small window so many later chunks are never on their way.
Window::Position Window::slack() const {
  return Position{std::clamp(congestion_.chunks() / 2, 1u, wire::kReorderSlackChunks)} * lease_.shards;
}

void Window::queue_overtaken(Position done, Queue queue) {
  Position& looked_at = overtaken_[lease_.shard_of(static_cast<std::uint32_t>(done))];
  for (; looked_at + slack() <= done; looked_at += lease_.shards) {
    if (looked_at < base_ || at(looked_at).is_done) continue;
    congestion_.on_loss(looked_at, next_, queue);
    if (at(looked_at).tries == 0) queue_probe(looked_at);
  }
  if (done < retried_overtaken_at_) return;
  retried_overtaken_at_ = UINT64_MAX;
  std::erase_if(retried_, [&](Position position) {
    if (position < base_ || at(position).is_done) return true;
    if (at(position).overtaken_at <= done) {
      queue_probe(position);  // transmitting it puts it back on watch
      return true;
    }
    retried_overtaken_at_ = std::min(retried_overtaken_at_, at(position).overtaken_at);
    return false;
  });
}

void Window::watch_again(Position position) {
  Chunk& chunk = at(position);
  const bool is_watched = chunk.overtaken_at != 0;
  chunk.overtaken_at = next_ + slack();
  retried_overtaken_at_ = std::min(retried_overtaken_at_, chunk.overtaken_at);
  if (!is_watched || std::find(retried_.begin(), retried_.end(), position) == retried_.end()) {
    retried_.push_back(position);
  }
}

// RFC 6298's estimator.
void Window::measure(Nanoseconds round_trip) {
  if (round_trip_ == 0) {
    round_trip_ = round_trip;
    variation_ = round_trip / 2;
  } else {
    variation_ += (std::abs(round_trip - round_trip_) - variation_) / 4;
    round_trip_ += (round_trip - round_trip_) / 8;
  }
  stats_.round_trip = round_trip_;
}

WindowStats Window::stats() const {
  WindowStats stats = stats_;
  stats.shrinks = congestion_.shrinks();
  stats.window_chunks = congestion_.chunks();
  return stats;
}

void Window::advance_base() {
  while (base_ < next_ && at(base_).is_done) ++base_;
  answered_at_ = kNever;
  missing_rank_.reset();
}

}  // namespace netfold::group

#include "session/window.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>

namespace netfold::session {
namespace {

constexpr std::uint32_t kWindowChunksMin = 8;
constexpr std::uint8_t kTriesCounted = 16;
constexpr std::uint32_t kDoublingsMax = 10;

}  // namespace

Window::Window(const wire::Lease& lease, WindowOptions options)
    : lease_(lease), options_(options), chunks_(lease.slots), overtaken_(lease.shards) {
  assert(std::has_single_bit(lease.slots));
  if (options_.window_chunks == 0) options_.window_chunks = lease.slots / 4;
  options_.window_chunks = std::clamp<std::uint32_t>(options_.window_chunks, 1, lease.slots);
  window_ = options_.window_chunks;
  again_.reserve(lease.slots);
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

std::optional<Window::Transmission> Window::next(Nanoseconds now) {
  while (!again_.empty()) {
    const Transmission again = again_.back();
    again_.pop_back();
    if (again.position < base_) continue;
    Chunk& chunk = at(again.position);
    chunk.is_queued = false;
    if (chunk.is_done) continue;
    if (chunk.tries < kTriesCounted) ++chunk.tries;
    watch_again(again.position);
    if (!again.is_probe) chunk.sent = now;
    ++(again.is_probe ? stats_.probes : stats_.resent_chunks);
    return again;
  }
  if (next_ == end_ || next_ >= base_ + lease_.slots || outstanding_ >= window_) return std::nullopt;
  const Position position = next_++;
  at(position) = {.sent = now};
  if (outstanding_++ == 0) timer_ = now + timeout();
  ++stats_.sent_chunks;
  return Transmission{position, false};
}

std::optional<Window::Position> Window::position_of(std::uint32_t chunk) const {
  const auto offset = static_cast<std::int32_t>(chunk - static_cast<std::uint32_t>(base_));
  if (offset < 0 || base_ + static_cast<std::uint32_t>(offset) >= next_) return std::nullopt;
  return base_ + static_cast<std::uint32_t>(offset);
}

bool Window::on_result(Position position, Nanoseconds now) {
  Chunk& chunk = at(position);
  if (chunk.is_done) {
    ++stats_.duplicate_results;
    return false;
  }
  chunk.is_done = true;
  --outstanding_;
  if (chunk.tries == 0) measure(now - chunk.sent);  // Karn: an ambiguous round trip is no measurement
  last_progress_ = now;
  silences_ = 0;
  timer_ = now + timeout();
  ++results_in_round_;
  queue_overtaken(position);
  if (position == base_) advance_base();
  if (results_in_round_ >= window_) adapt();
  return true;
}

void Window::on_missing(Position position, Nanoseconds) {
  if (position == base_) switch_answered_ = true;
  ++missing_in_round_;
  if (!at(position).is_done) queue(position, false);
}

void Window::on_waiting(Position position, std::uint16_t missing_rank, Nanoseconds) {
  if (position != base_) return;
  switch_answered_ = true;
  missing_rank_ = missing_rank;
}

Nanoseconds Window::deadline() const {
  return outstanding_ == 0 ? kNever : timer_;
}

Nanoseconds Window::timeout() const {
  const Nanoseconds once =
      round_trip_ == 0 ? options_.timeout_start : std::max(options_.timeout_min, round_trip_ + 4 * variation_);
  return std::min(options_.timeout_max, once << std::min(silences_, kDoublingsMax));
}

void Window::on_time(Nanoseconds now) {
  if (outstanding_ == 0 || now < timer_) return;
  std::uint64_t probes = std::uint64_t{1} << std::min(silences_, kDoublingsMax);
  // The youngest first, so that the oldest ends on top of the stack.
  Position last = base_;
  for (; last < next_ && probes > 0; ++last) {
    if (!at(last).is_done) --probes;
  }
  for (Position position = last; position-- > base_;) {
    if (!at(position).is_done) queue(position, true);
  }
  ++silences_;
  timer_ = now + timeout();
}

void Window::queue(Position position, bool as_probe) {
  Chunk& chunk = at(position);
  if (!chunk.is_queued) {
    chunk.is_queued = true;
    again_.push_back({position, as_probe});
  } else if (!as_probe) {  // the elements say more than a probe would
    for (Transmission& again : again_) {
      if (again.position == position) again.is_probe = false;
    }
  }
}

void Window::queue_overtaken(Position done) {
  Position& looked_at = overtaken_[lease_.shard_of(static_cast<std::uint32_t>(done))];
  const Position slack = Position{wire::kReorderSlackChunks} * lease_.shards;
  for (; looked_at + slack <= done; looked_at += lease_.shards) {
    if (looked_at >= base_ && !at(looked_at).is_done && at(looked_at).tries == 0) queue(looked_at, true);
  }
  if (done < retried_overtaken_at_) return;
  retried_overtaken_at_ = UINT64_MAX;
  std::erase_if(retried_, [&](Position position) {
    if (position < base_ || at(position).is_done) return true;
    if (at(position).overtaken_at <= done) {
      queue(position, true);  // transmitting it puts it back on watch
      return true;
    }
    retried_overtaken_at_ = std::min(retried_overtaken_at_, at(position).overtaken_at);
    return false;
  });
}

void Window::watch_again(Position position) {
  Chunk& chunk = at(position);
  const bool is_watched = chunk.overtaken_at != 0;
  chunk.overtaken_at = next_ + Position{wire::kReorderSlackChunks} * lease_.shards;
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

// Random loss must not slow a self-clocked window down, an overflowing queue must: only when more than a quarter of a
// window's contributions had to be sent again does the window halve; without any loss it grows back by an eighth.
void Window::adapt() {
  if (missing_in_round_ > window_ / 4) {
    window_ = std::max(std::min(kWindowChunksMin, options_.window_chunks), window_ / 2);
    ++stats_.shrinks;
  } else if (missing_in_round_ == 0) {
    window_ = std::min(options_.window_chunks, window_ + std::max<std::uint32_t>(1, window_ / 8));
  }
  results_in_round_ = 0;
  missing_in_round_ = 0;
}

void Window::advance_base() {
  while (base_ < next_ && at(base_).is_done) ++base_;
  switch_answered_ = false;
  missing_rank_.reset();
}

}  // namespace netfold::session

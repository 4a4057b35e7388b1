#include "group/via_switch/observer_watch.h"

#include <algorithm>

namespace netfold::group {

void ObserverWatch::expect(std::uint64_t chunks, Nanoseconds now) {
  end_ += chunks;
  ends_.push_back(end_);
  if (ends_.size() == 1) begin(now);
}

// The oldest tensor is another one.
void ObserverWatch::begin(Nanoseconds now) {
  std::fill(is_passed_.begin(), is_passed_.end(), false);
  std::fill(is_asked_.begin(), is_asked_.end(), false);
  pause_ = kAskAgainFirst;
  ask_again_at_ = now;
}

std::optional<ObserverWatch::Question> ObserverWatch::next(Nanoseconds now) {
  if (is_idle() || now < ask_again_at_) return std::nullopt;
  for (std::uint16_t shard = 0; shard < lease_.shards; ++shard) {
    if (is_passed_[shard] || is_asked_[shard]) continue;
    is_asked_[shard] = true;
    return Question{shard, mark_of(shard)};
  }
  std::fill(is_asked_.begin(), is_asked_.end(), false);
  ask_again_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kAskAgainMost);
  return std::nullopt;
}

bool ObserverWatch::on_complete(std::uint32_t chunk, Nanoseconds now) {
  const std::uint16_t shard = lease_.shard_of(chunk);
  if (is_idle() || chunk != mark_of(shard)) return false;
  is_passed_[shard] = true;
  if (std::find(is_passed_.begin(), is_passed_.end(), false) != is_passed_.end()) return true;
  ends_.pop_front();
  ++completed_;
  begin(now);
  return true;
}

// The first chunk from the oldest tensor's end on that falls to the shard.
std::uint32_t ObserverWatch::mark_of(std::uint16_t shard) const {
  const auto end = static_cast<std::uint32_t>(lease_.first_chunk + ends_.front());
  return end + ((shard - end) & (lease_.shards - 1u));
}

}  // namespace netfold::group

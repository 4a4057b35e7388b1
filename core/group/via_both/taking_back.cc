#include "group/via_both/taking_back.h"

#include <algorithm>

namespace netfold::group {
namespace {

// It costs three messages between the ranks, and a sum that begins late.
constexpr double kMovedLeast = 0.1;  // of what the ranks may receive
constexpr double kWorthTimes = 1.5, kWorthSeconds = 0.1;

}  // namespace

void TakingBack::ask(SwitchLife of) {
  of_ = of;
  std::ranges::fill(handed_, std::nullopt);
}

void TakingBack::hear(int rank, SwitchLife of, std::uint64_t handed) {
  if (of_ && of_->at == of.at && of_->life == of.life) handed_[static_cast<std::size_t>(rank)] = handed;
}

std::optional<int> TakingBack::waits_for() const {
  const auto silent = std::ranges::find_if(handed_, [](const auto& each) { return !each; });
  if (!of_ || silent == handed_.end()) return std::nullopt;
  return static_cast<int>(silent - handed_.begin());
}

std::uint64_t TakingBack::first() const {
  std::uint64_t most = 0;
  for (const auto& each : handed_) most = std::max(most, each.value_or(0));
  return most;
}

void SwitchRate::look(Nanoseconds now, std::uint64_t chunks, std::uint64_t among_ranks, bool is_busy) {
  const bool has_moved = chunks != chunks_, begins = !is_busy || !is_busy_ || (has_moved && now - moved_at_ > kStall);
  if (begins) {
    moments_.clear();
  } else if (now - begun_ >= kMoment) {
    const double seconds = to_seconds(now - begun_);
    moments_.push_back({static_cast<double>(chunks - chunks_at_begin_) / seconds,
                        static_cast<double>(among_ranks - ranks_at_begin_) / seconds});
    if (moments_.size() > kMoments) moments_.pop_front();
  }
  if (begins || now - begun_ >= kMoment) {
    begun_ = now;
    chunks_at_begin_ = chunks;
    ranks_at_begin_ = among_ranks;
  }
  if (has_moved || !is_busy_) moved_at_ = now;
  is_busy_ = is_busy;
  chunks_ = chunks;
}

std::optional<double> SwitchRate::chunks_s(double ranks_bytes_s) const {
  if (moments_.size() < kMoments) return std::nullopt;
  double fastest = 0, received_bytes_s = 0;
  for (const Moment& each : moments_) {
    fastest = std::max(fastest, each.chunks_s);
    received_bytes_s += each.ranks_bytes_s / static_cast<double>(moments_.size());
  }
  return fastest / std::clamp(received_bytes_s / ranks_bytes_s, kMovedLeast, 1.0);
}

double bytes_to_take_back(const Load& load) {
  if (load.switch_bytes_s <= 0 || load.ranks_bytes_s <= 0) return 0;
  const double switch_s = load.in_switch / load.switch_bytes_s, ranks_s = load.among_ranks / load.ranks_bytes_s;
  if (switch_s < kWorthTimes * ranks_s + kWorthSeconds) return 0;
  return (switch_s - ranks_s) / (1 / load.switch_bytes_s + load.received_each / load.ranks_bytes_s);
}

}  // namespace netfold::group

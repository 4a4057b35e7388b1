#include "membership/path_search.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace netfold::membership {
namespace {

constexpr std::initializer_list<std::uint32_t> kCommonBytes = {256, 576, 1280, 1400, 1500, 4000};
constexpr std::uint32_t kSizesOfARound = 8;
constexpr std::uint32_t kCloseEnoughBytes = 8;  // payloads are multiples of 4
constexpr int kTries = 6;                       // of a size; a third of all packets may be lost
constexpr Nanoseconds kPauseFirst = 50 * kMillisecond, kPauseLeast = 10 * kMillisecond;  // between two tries
constexpr int kRoundTripsOfAPause = 3;
constexpr Nanoseconds kSearchMax = 800 * kMillisecond;

}  // namespace

PathSearch::PathSearch(std::uint32_t most_bytes, Nanoseconds now)
    : most_(most_bytes), too_large_(most_bytes + 1), next_at_(now), ends_at_(now + kSearchMax) {
  std::vector<std::uint32_t> sizes;
  for (const std::uint32_t size : kCommonBytes) {
    if (size < most_) sizes.push_back(size);
  }
  sizes.push_back(most_);
  begin_round(std::move(sizes), now);
}

void PathSearch::begin_round(std::vector<std::uint32_t> sizes, Nanoseconds now) {
  sizes_ = std::move(sizes);
  at_ = 0;
  tries_ = 0;
  next_at_ = now;
}

Nanoseconds PathSearch::pause() const {
  return round_trip_ == 0 ? kPauseFirst : std::max(kPauseLeast, kRoundTripsOfAPause * round_trip_);
}

std::optional<PathSearch::Probe> PathSearch::next(Nanoseconds now) {
  if (is_over_ || now < next_at_ || tries_ == kTries) return std::nullopt;
  while (at_ < sizes_.size() && sizes_[at_] <= passed_) ++at_;  // nothing to learn
  if (at_ == sizes_.size()) {
    at_ = 0;
    ++tries_;
    next_at_ = now + pause();
    return std::nullopt;
  }
  const auto number = static_cast<std::uint32_t>(sent_.size());
  sent_.push_back(sizes_[at_]);
  sent_when_.push_back(now);
  return Probe{number, sizes_[at_++]};
}

void PathSearch::on_answer(std::uint32_t number, Nanoseconds now) {
  if (number >= sent_.size()) return;
  passed_ = std::max(passed_, sent_[number]);
  if (round_trip_ == 0) round_trip_ = std::max<Nanoseconds>(1, now - sent_when_[number]);
}

// False if it is known closely enough.
bool PathSearch::begin_next_round(Nanoseconds now) {
  for (const std::uint32_t size : sizes_) {
    if (size > passed_) too_large_ = std::min(too_large_, size);
  }
  if (passed_ == 0 || too_large_ <= passed_ + kCloseEnoughBytes) return false;
  std::vector<std::uint32_t> sizes;
  const std::uint32_t step = std::max((too_large_ - passed_) / (kSizesOfARound + 1), kCloseEnoughBytes);
  for (std::uint32_t size = passed_ + step; size < too_large_; size += step) sizes.push_back(size);
  begin_round(std::move(sizes), now);
  return true;
}

std::optional<std::uint32_t> PathSearch::found(Nanoseconds now) {
  if (is_over_) return passed_;
  const bool round_is_over = sizes_.back() <= passed_ || (tries_ == kTries && now >= next_at_);
  if (passed_ == most_ || now >= ends_at_ || (round_is_over && !begin_next_round(now))) {
    is_over_ = true;
    return passed_;
  }
  return std::nullopt;
}

Nanoseconds PathSearch::deadline() const {
  return is_over_ ? kNever : std::min(next_at_, ends_at_);
}

}  // namespace netfold::membership

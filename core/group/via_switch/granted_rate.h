// A rate that the switch grants to each worker of a job, because other traffic has more of the switch's link than is
// fair (switch/fair_shares.h). CUBIC, for one, keeps a queue full for seconds and loses little, while a job of eight
// workers loses something in each of them, and goes as slowly as the one that lost most. So for a while the window does
// not fall below what this rate needs.
//
// A worker whose own link carries less than the grant loses much of what it sends. It then refuses grants for a time,
// which doubles until a second with grants loses little.
// Pure: grants, losses and time go in, a number of chunks comes out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace netfold::group {

class GrantedRate {
 public:
  void on_grant(double chunks_s, Nanoseconds now) {
    if (now < refused_until_) return;
    if (now >= until_) {
      count_from(now);
    } else if (now - counted_from_ >= kCounted) {
      refused_for_ = kRefusedLeast;
      count_from(now);
    }
    chunks_s_ = chunks_s;
    until_ = now + kLasts;
  }

  void on_sent() { ++sent_; }

  // The switch does not have one of this worker's chunks.
  void on_missing(Nanoseconds now) {
    if (now >= until_) return;
    if (++missing_ * kLostPart <= std::max(sent_, kSentLeast)) return;
    until_ = 0;
    refused_until_ = now + refused_for_;
    refused_for_ = std::min(2 * refused_for_, kRefusedMost);
  }

  // The least window; 0 without a grant.
  std::uint32_t chunks(Nanoseconds round_trip, Nanoseconds now) const {
    return now < until_ ? static_cast<std::uint32_t>(chunks_s_ * to_seconds(round_trip)) : 0;
  }

 private:
  static constexpr Nanoseconds kLasts = kSecond;  // four looks of the switch: a line may come late
  static constexpr Nanoseconds kCounted = kSecond;
  static constexpr std::uint64_t kLostPart = 8;     // one chunk of so many is much
  static constexpr std::uint64_t kSentLeast = 128;  // of fewer, a loss by chance would be a large part
  static constexpr Nanoseconds kRefusedLeast = 2 * kSecond, kRefusedMost = 128 * kSecond;

  void count_from(Nanoseconds now) {
    counted_from_ = now;
    sent_ = missing_ = 0;
  }

  double chunks_s_ = 0;
  Nanoseconds until_ = 0, counted_from_ = 0, refused_until_ = 0, refused_for_ = kRefusedLeast;
  std::uint64_t sent_ = 0, missing_ = 0;
};

}  // namespace netfold::group

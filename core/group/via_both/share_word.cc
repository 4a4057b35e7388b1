#include "group/via_both/share_word.h"

#include <algorithm>
#include <cmath>

namespace netfold::group {
namespace {

constexpr std::int32_t kShareUnits = 1 << 20;
constexpr std::int32_t kIsMeasured = 1, kGivesRoom = 2, kJoinsScatters = 4, kOneWayToSwitch = 8,
                       kOneWaysOverlap = 16;  // flags
constexpr double kPieceUnit = 1024;           // bytes
constexpr double kPaceUnit = 1024;            // bytes/s

std::int32_t units_of(double value, double unit) {
  return static_cast<std::int32_t>(std::clamp(value / unit, 0.0, static_cast<double>(INT32_MAX)));
}

std::int32_t share_units(double part) {
  return static_cast<std::int32_t>(std::lround(part * kShareUnits));
}

}  // namespace

void ShareWord::write(const Share& share, const std::vector<std::size_t>& lives) {
  numbers_ = {units_of(share.pace_bytes_s, kPaceUnit),
              units_of(share.link_bytes_s, kPaceUnit),
              (share.is_measured ? kIsMeasured : 0) | (share.gives_room ? kGivesRoom : 0) |
                  (share.joins_scatters ? kJoinsScatters : 0) | (share.one_way_to_switch ? kOneWayToSwitch : 0) |
                  (share.one_ways_overlap ? kOneWaysOverlap : 0),
              static_cast<std::int32_t>(share.small_to_switch),
              static_cast<std::int32_t>(share.small_switch),
              units_of(share.piece_bytes, kPieceUnit)};
  double so_far = 0;
  for (const double part : share.of_switches) {
    numbers_.push_back(share_units(so_far + part) - share_units(so_far));
    so_far += part;
  }
  numbers_.resize(kFixed + switches_);  // before anything is measured there are no shares
  for (const std::size_t life : lives) numbers_.push_back(static_cast<std::int32_t>(life));
}

Share ShareWord::share() const {
  Share share;
  share.pace_bytes_s = std::max(numbers_[0], 0) * kPaceUnit;
  share.link_bytes_s = std::max(numbers_[1], 0) * kPaceUnit;
  share.is_measured = (numbers_[2] & kIsMeasured) != 0;
  share.gives_room = (numbers_[2] & kGivesRoom) != 0;
  share.joins_scatters = (numbers_[2] & kJoinsScatters) != 0;
  share.one_way_to_switch = (numbers_[2] & kOneWayToSwitch) != 0;
  share.one_ways_overlap = (numbers_[2] & kOneWaysOverlap) != 0;
  share.small_to_switch = static_cast<std::uint32_t>(numbers_[3]);
  share.small_switch = std::min(static_cast<std::size_t>(std::max(numbers_[4], 0)), switches_ - 1);
  share.piece_bytes = std::max(numbers_[5], 1) * kPieceUnit;
  std::int32_t left = kShareUnits;
  for (std::size_t at = 0; at < switches_; ++at) {
    const std::int32_t units = std::clamp(numbers_[kFixed + at], 0, left);
    left -= units;
    share.of_switches.push_back(units / static_cast<double>(kShareUnits));
  }
  return share;
}

std::vector<std::size_t> ShareWord::lives() const {
  std::vector<std::size_t> lives;
  for (std::size_t at = 0; at < lives_; ++at) {
    lives.push_back(static_cast<std::size_t>(std::max(numbers_[kFixed + switches_ + at], 0)));
  }
  return lives;
}

}  // namespace netfold::group

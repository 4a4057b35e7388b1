#include "group/via_both/one_way_choice.h"

#include <algorithm>
#include <utility>

namespace netfold::group {
namespace {

constexpr Nanoseconds kPart = 4;  // one part in so many of a reduce-scatter's time beside an all-gather is enough

}  // namespace

void OneWayChoice::hand_over(Ticket ticket, bool is_scatter, std::size_t size_bytes, Nanoseconds now) {
  advance(now);
  ++running_[is_scatter ? 1 : 0];
  const bool is_alone = collectives_.empty();
  for (auto& [other, each] : collectives_) each.is_alone = false;
  collectives_[ticket] = {.is_scatter = is_scatter,
                          .is_alone = is_alone,
                          .size_bytes = size_bytes,
                          .begun = advanced_at_,
                          .together = together_};
}

void OneWayChoice::end(Ticket ticket, Nanoseconds now) {
  const auto found = collectives_.find(ticket);
  if (found == collectives_.end()) return;
  advance(now);
  const Collective ended = found->second;
  collectives_.erase(found);
  --running_[ended.is_scatter ? 1 : 0];
  ++period_.ended[ended.in_switch ? 1 : 0];
  period_.size_bytes += ended.size_bytes;
  if (!ended.is_scatter) return look_at_gather(ended);
  overlaps_ <<= 1;
  overlaps_[0] = kPart * (together_ - ended.together) >= advanced_at_ - ended.begun;
  if (++period_.scatters == kScattersOfPeriod) end_period();
}

void OneWayChoice::advance(Nanoseconds now) {
  if (running_[0] + running_[1] > 0) period_.busy += now - advanced_at_;
  if (running_[0] > 0 && running_[1] > 0) together_ += now - advanced_at_;
  advanced_at_ = now;
}

// With the part f of reduce-scatters beside an all-gather, a pair takes f (n + 1) + (1 - f) (2 n - 1) through a switch
// that takes all that a link carries, and 2 (n - 1) among the ranks. Those that have not come yet count as alone.
bool OneWayChoice::would_pay() const {
  return static_cast<double>(overlaps_.count()) * (world_ - 2) > static_cast<double>(kLast);
}

void OneWayChoice::end_period() {
  const Period ended = std::exchange(period_, {});
  ++periods_;
  const bool has_one_way = ended.ended[0] == 0 || ended.ended[1] == 0;
  const bool in_switch = ended.ended[1] > 0;
  const bool counts = has_one_way && !(in_switch && std::exchange(is_new_, false));
  if (counts) {
    double& known = seconds_per_byte_[in_switch ? 1 : 0];
    const double now = to_seconds(ended.busy) / static_cast<double>(ended.size_bytes);
    known = known == 0 ? now : (known + now) / 2;
  }
  if (!would_pay()) {
    wants_switch_ = false;
  } else if (!wants_switch_) {
    wants_switch_ = is_new_ = periods_ >= tries_at_;
    if (wants_switch_) seconds_per_byte_[1] = gathers_ = slow_gathers_ = 0;
  } else if (counts && in_switch && seconds_per_byte_[1] > seconds_per_byte_[0]) {
    leave_switch();
  }
}

void OneWayChoice::leave_switch() {
  wants_switch_ = false;
  tries_at_ = periods_ + patience_;
  patience_ = std::min(2 * patience_, kPatienceMax);
}

// If it takes r times as long in the switch, a pair takes r (n + 1) there, and 2 (n - 1) among the ranks.
void OneWayChoice::look_at_gather(const Collective& ended) {
  if (!ended.is_alone) return;
  const double now = to_seconds(advanced_at_ - ended.begun) / static_cast<double>(ended.size_bytes);
  double& known = gather_seconds_per_byte_;
  if (!ended.in_switch) {
    known = known == 0 ? now : (known + now) / 2;
  } else if (wants_switch_ && known > 0 && ++gathers_ > kGathersOfNew) {
    slow_gathers_ = now * (world_ + 1) > known * 2 * (world_ - 1) ? slow_gathers_ + 1 : 0;
    if (slow_gathers_ >= kSlowGathersMax) leave_switch();
  }
}

}  // namespace netfold::group

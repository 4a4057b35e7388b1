#include "group/via_both/share.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace netfold::group {
namespace {

constexpr double kNoneBelow = 0.05, kAllFrom = 0.95;  // what is left is not worth a second way
constexpr double kShareMin = 1.0 / 128;               // to find out more
constexpr double kPaceMin = 1.0 / 16;
constexpr double kProbe = 1.25, kLaterProbe = 1.08;  // times what the link is known to carry
constexpr double kForget = 1.02;                     // the link, at each tensor that does not load it more
constexpr int kLinkProbePeriod = 64, kSwitchProbePeriod = 10, kTryAllPeriod = 64;  // tensors
constexpr int kSoonProbePeriod = 4;  // tensors: of a switch that took much more before
constexpr int kLinkProbeTensors = 2;
constexpr double kUsualPart = 0.95;              // of the link: what parts that do not quite end together reach
constexpr double kNearlyAll = 0.6;               // of the link: a switch that takes so much may take all of it
constexpr double kNews = 1.03, kMuchNews = 1.1;  // a measured rate above the estimate, after which it may grow on
constexpr double kMuchRoom = 1.5;
constexpr int kInVainMax = 2, kLargeProbes = 2, kLargeProbesOfChanged = 8;  // probes of a switch
constexpr double kNearlyAllRoom = 0.95;                     // a switch that takes so much of its room may take more
constexpr double kTogether = 0.03;                          // the parts end together if they differ by less
constexpr double kNoise = 0.4, kNoiseAtEnds = 0.6;          // a smaller difference is half believed, or not at all
constexpr double kFormerPart = 0.85, kForgetFormer = 0.99;  // a switch that takes less was faster before
constexpr double kForgetSeen = 0.97;                        // of what switches took of a tensor, at each later one
constexpr double kSlowerMin = 0.1, kFasterMax = 2;          // by what one tensor changes the estimate
constexpr double kSeenSlowerMin = 0.2;                      // by what is seen before a tensor is over
constexpr double kMiss = 1.5;                               // times the predicted time
constexpr int kMissesMax = 8;
constexpr int kPatienceMin = 16, kPatienceMax = 256;  // tensors
// A piece must last long beside what every piece costs: a round of messages, and a word.
constexpr double kPieceSeconds = 0.08, kPieceBytesMin = 1 << 20;
constexpr int kSizeClasses = 32;               // of small tensors
constexpr double kDoubledBytesMax = 32 << 10;  // of a tensor that ranks sum by recursive doubling (schedule.h)

double seconds_in_switches(const ShareEstimate::Outcome& outcome) {
  return to_seconds(std::ranges::max(outcome.in_switches));
}

double seconds_of(const ShareEstimate::Outcome& outcome) {
  return std::max(seconds_in_switches(outcome), to_seconds(outcome.among_ranks));
}

}  // namespace

ShareEstimate::ShareEstimate(int world)
    : world_(world), sent_among_ranks_(sent_among_ranks(world)), patience_(kPatienceMin) {}

Share ShareEstimate::next() {
  if (!is_measured_) return {};
  const bool goes_without = without_.next();
  const bool probes_switch = !goes_without && (takes_more_ || --until_switch_probed_ <= 0);
  if (probes_switch) until_switch_probed_ = is_below_former() ? kSoonProbePeriod : kSwitchProbePeriod;
  ++issued_;
  ++since_measured_;
  const double link = ways_.link_bytes_s * (probes_switch ? 1 : probe_link());
  const double room = probes_switch ? room_ : 1;
  const double at_switches = ways_.switches_bytes_s();
  const bool tries_all = probes_switch && at_switches > kNearlyAll * link && (takes_more_ || issued_ >= try_all_at_);
  if (tries_all) try_all_at_ = issued_ + kTryAllPeriod;
  double share = best_share();
  if (tries_all) share = 1;
  if (goes_without || (share < kNoneBelow && !probes_switch)) share = 0;
  return {.of_switches = of_switches(share, probes_switch),
          .pace_bytes_s = std::max({link - room * at_switches, (link - at_switches) / room, kPaceMin * link}),
          .link_bytes_s = link,
          .gives_room = probes_switch,
          .is_measured = true,
          .piece_bytes = std::max(kPieceSeconds * link, kPieceBytesMin),
          .small_to_switch = small_to_switch(),
          .small_switch = small_switch()};
}

// What the link carries by itself is measured too low where a queue was short, or the tensor small.
double ShareEstimate::probe_link() {
  if (!is_probing_link_ && --until_link_probed_ <= 0) {
    until_link_probed_ = kLinkProbePeriod;
    is_probing_link_ = true;
    growth_ = kLaterProbe;
  }
  return is_probing_link_ ? growth_ : 1;
}

// It took much more before, and may soon do so again: a link that was cut is restored.
bool ShareEstimate::is_below_former() const {
  return ways_.switches_bytes_s() < kFormerPart * former_bytes_s_;
}

double ShareEstimate::best_share() const {
  if (ways_.switches_bytes_s() <= 0) return 0;
  const double share = sent_among_ranks_ / (ways_.link_bytes_s / ways_.switches_bytes_s() + sent_among_ranks_ - 1);
  return share > kAllFrom ? 1 : std::max(share, kShareMin);
}

// A switch that takes little beside the others gets something only `to_all`.
std::vector<double> ShareEstimate::of_switches(double share, bool to_all) const {
  const double least = to_all ? 0 : kNoneBelow * ways_.switches_bytes_s();
  if (share == 0) return std::vector<double>(ways_.switches.size());
  std::vector<double> parts;
  for (const auto& each : ways_.switches) parts.push_back(each.bytes_s >= least ? each.bytes_s : 0);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part *= share / sum;
  return parts;
}

std::size_t ShareEstimate::small_switch() const {
  const auto took = [](const Ways::Switch& each) { return each.bytes_s > 0 ? each.small : kNever; };
  const auto fastest = std::ranges::min_element(ways_.switches, {}, took);
  return static_cast<std::size_t>(fastest - ways_.switches.begin());
}

std::uint32_t ShareEstimate::small_to_switch() const {
  std::uint32_t classes = 0;
  const Ways::Switch& by = ways_.switches[small_switch()];
  if (by.bytes_s <= 0) return 0;
  for (int each = 0; each < kSizeClasses; ++each) {
    const double size_bytes = 0.75 * std::exp2(each);  // in the middle of the class
    const double sent =
        size_bytes < kDoubledBytesMax ? std::bit_width(static_cast<unsigned>(world_ - 1)) : sent_among_ranks_;
    const double in_switch = to_seconds(by.small) + size_bytes / by.bytes_s;
    const double among_ranks = to_seconds(ways_.small_among_ranks) + sent * size_bytes / ways_.link_bytes_s;
    if (in_switch < among_ranks) classes |= std::uint32_t{1} << each;
  }
  return classes;
}

void ShareEstimate::measured(const Ways& ways) {
  ways_ = ways;
  is_measured_ = true;
  since_measured_ = misses_ = 0;
  seen_bytes_s_ = former_bytes_s_ = 0;
  ratios_.assign(ways.switches.size(), 1);
  probed_ = usual_ = {};
  is_probing_link_ = false;
  room_ = kRoomMore;
  large_probes_ = kLargeProbes;
  in_vain_ = 0;
  takes_more_ = true;
  without_ = {};
  until_link_probed_ = kLinkProbePeriod;
  until_switch_probed_ = kSwitchProbePeriod;
  for (const std::size_t at : lost_) ways_.switches[at].bytes_s = 0;
  keep_within_link();
}

void ShareEstimate::lose(std::size_t at) {
  if (!is_lost(at)) lost_.push_back(at);
  if (at < ways_.switches.size()) ways_.switches[at].bytes_s = 0;
  decided_ = issued_;  // what was divided before says nothing about the others
}

void ShareEstimate::regain(std::size_t at) {
  std::erase(lost_, at);
  is_measured_ = false;
}

void ShareEstimate::slow_down(std::size_t at, double bytes_s) {
  double& at_switch = ways_.switches[at].bytes_s;
  begin_anew();
  at_switch = std::max(bytes_s, kSeenSlowerMin * at_switch);
  ratios_.assign(ratios_.size(), 1);
  decided_ = issued_;
}

// A switch has changed much.
void ShareEstimate::begin_anew() {
  without_.begin_anew();
  large_probes_ = kLargeProbesOfChanged;
  room_ = std::max(room_, kRoomMore);
  former_bytes_s_ = std::max(former_bytes_s_, ways_.switches_bytes_s());
  until_switch_probed_ = std::min(until_switch_probed_, kSoonProbePeriod);
}

void ShareEstimate::note(std::uint64_t tensor, const Share& share, const Outcome& outcome) {
  const double took_s = seconds_of(outcome);
  if (!is_measured_ || took_s <= 0) return;
  if (!share.gives_room && !probes_link(share)) {
    without_.note(share.of_all_switches() == 0, took_s * ways_.link_bytes_s / (sent_among_ranks_ * outcome.size_bytes));
  }
  // Others were divided before the last change, and say nothing about it.
  if (tensor >= decided_) follow(share, outcome, took_s);
}

// Whether the ranks were let go faster than their link is known to carry.
bool ShareEstimate::probes_link(const Share& share) const {
  return !share.gives_room && share.link_bytes_s > std::sqrt(kLaterProbe) * ways_.link_bytes_s;
}

// After a change.
void ShareEstimate::keep_within_link() {
  const double too_much = ways_.switches_bytes_s() / ways_.link_bytes_s;
  for (auto& each : ways_.switches) each.bytes_s /= std::max(too_much, 1.0);
  decided_ = issued_;
}

void ShareEstimate::follow(const Share& share, const Outcome& outcome, double took_s) {
  double predicted_s = 0;  // of the slowest switch
  for (std::size_t each = 0; each < ways_.switches.size(); ++each) {
    if (is_lost(each)) continue;
    predicted_s = std::max(predicted_s, share.of_switches[each] * outcome.size_bytes / ways_.switches[each].bytes_s);
  }
  double& link = ways_.link_bytes_s;
  const double x = share.of_all_switches(), sent = outcome.size_bytes * (x + sent_among_ranks_ * (1 - x));
  look_for_misses(took_s, std::max(predicted_s, sent / link));
  if (outcome.among_ranks > 0) {
    const bool is_probe = probes_link(share);
    if (!share.gives_room && !outcome.is_at_an_end) {
      (is_probe ? probed_ : usual_).add(sent, to_seconds(outcome.whole));
    }
    if (probed_.tensors >= kLinkProbeTensors) return follow_link();
    if (is_probe) return;  // what is let go faster holds up the other parts
  } else {
    link = std::max(sent / took_s, link / kForget);  // a burst may have been taken for it
    is_probing_link_ = false;                        // the ranks send nothing that could be let go faster
  }
  follow_switches(share, outcome);
}

// Some tensors were let go faster. Too much for a link makes its queue lose packets, so they may even be slower. The
// link is slower than thought only if it carried less without them, too.
void ShareEstimate::follow_link() {
  double& link = ways_.link_bytes_s;
  const double carried = probed_.bytes_s(), usual = usual_.tensors > 0 ? usual_.bytes_s() : carried;
  probed_ = usual_ = {};
  is_probing_link_ = carried > kNews * link;
  growth_ = carried > kMuchNews * link ? kProbe : kLaterProbe;
  decided_ = issued_;
  if (carried >= link) {
    link = carried;
  } else if (usual < kUsualPart * link) {
    link = std::max({carried, usual, link / kLaterProbe});
  }
}

void ShareEstimate::follow_switches(const Share& share, const Outcome& outcome) {
  const double in_switches_s = seconds_in_switches(outcome), size = outcome.size_bytes;
  if (in_switches_s > 0) {
    seen_bytes_s_ = std::max(share.of_all_switches() * size / in_switches_s, kForgetSeen * seen_bytes_s_);
  }
  if (outcome.among_ranks <= 0) takes_more_ = false;
  const double at_switches = ways_.switches_bytes_s();
  const double room = share.link_bytes_s - share.pace_bytes_s;
  bool has_changed = false;
  for (std::size_t each = 0; each < ways_.switches.size(); ++each) {
    if (outcome.in_switches[each] <= 0 || is_lost(each)) continue;
    double& at_switch = ways_.switches[each].bytes_s;
    const double taken = share.of_switches[each] * size / to_seconds(outcome.in_switches[each]) / at_switch;
    double times = 1;
    if (outcome.among_ranks <= 0) {
      times = std::abs(taken - 1) > kTogether ? taken : 1;
    } else if (share.gives_room) {  // and a burst passes faster
      times = taken > kNews ? std::min({taken, 1 + (room - at_switches) / at_switch, kRoomOfFormer}) : 1;
    } else {
      // That the ranks need longer proves nothing of a switch that takes no more than it was thought to take.
      times = std::min(change_by_ratio(each, outcome), std::max(seen_bytes_s_ / at_switches, 1.0));
    }
    has_changed = has_changed || times != 1;
    at_switch *= times;
  }
  if (share.gives_room && outcome.among_ranks > 0)
    choose_room(ways_.switches_bytes_s() / at_switches, room / at_switches);
  if (has_changed) keep_within_link();
}

// The ranks needed so much longer than the switch, or it than they. A part that ends late makes the next one look fast,
// so a small difference must show twice.
double ShareEstimate::change_by_ratio(std::size_t each, const Outcome& outcome) {
  const double ratio = to_seconds(outcome.among_ranks) / to_seconds(outcome.in_switches[each]);
  if (std::abs(ratio - 1) >= (outcome.is_at_an_end ? kNoiseAtEnds : kNoise)) {
    begin_anew();
    return std::clamp(ratio, kSlowerMin, kFasterMax);
  }
  if (outcome.is_at_an_end) return 1;
  const double before = std::exchange(ratios_[each], ratio);
  const double agreed = ratio < 1 ? std::max(ratio, before) : std::min(ratio, before);
  if ((ratio < 1) != (agreed < 1) || std::abs(agreed - 1) <= kTogether) return 1;
  return std::sqrt(agreed);
}

// Room that a switch does not take makes a tensor slower, so the routine probe is a small one. It is larger where the
// switch has changed lately. While the switch takes more, probes follow each other.
void ShareEstimate::choose_room(double grown, double offered) {
  const bool was_much = offered > kMuchRoom;
  takes_more_ = grown > kNews;
  if (takes_more_) {
    in_vain_ = 0;
    large_probes_ = std::max(large_probes_, kLargeProbes);
    const bool takes_all = grown > kNearlyAllRoom * offered && offered > kNearlyAllRoom * kRoomMore;
    room_ = takes_all ? kRoomMax : kRoomMore;
    if (takes_all && is_below_former()) {
      room_ = std::clamp(former_bytes_s_ / ways_.switches_bytes_s(), kRoomMore, kRoomOfFormer);
    }
    return;
  }
  ++in_vain_;
  former_bytes_s_ *= kForgetFormer;
  large_probes_ = std::max(large_probes_ - 1, 0);
  room_ = large_probes_ > 0 || was_much || is_below_former() ? kRoomMore : kRoomMin;
  // It may have been too much at once, or the switch needs a moment.
  takes_more_ = was_much || (large_probes_ > kLargeProbes && in_vain_ < kInVainMax);
}

// The link may have become slower. Or the ranks wait for each other, and it is as it was.
void ShareEstimate::look_for_misses(double took_s, double predicted_s) {
  misses_ = took_s > kMiss * predicted_s ? misses_ + 1 : 0;
  if (misses_ < kMissesMax || since_measured_ < patience_) return;
  is_measured_ = false;
  patience_ = std::min(2 * patience_, kPatienceMax);
}

}  // namespace netfold::group

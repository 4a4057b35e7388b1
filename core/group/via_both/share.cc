#include "group/via_both/share.h"

#include <algorithm>
#include <cmath>

namespace netfold::group {
namespace {

constexpr double kRestMin = 0.2;  // of a tensor by which the link is measured
constexpr double kShareMin = 1.0 / 128;
constexpr double kAllFrom = 0.95;  // what is left is not worth a second way
constexpr double kPaceMin = 1.0 / 16;
constexpr double kProbe = 1.25, kLaterProbe = 1.08;  // of the link, by which a tensor is let go faster
constexpr int kProbePeriod = 16;                     // tensors
constexpr double kNews = 1.03, kMuchNews = 1.1;      // a measured rate above the estimate, after which it may grow on
constexpr double kTogether = 0.03;                   // the parts end together if they differ by less
constexpr double kNoise = 0.15;                      // a smaller difference is half believed
constexpr double kSlowerMin = 0.1, kFasterMax = 2;   // by what one tensor changes the estimate
constexpr double kMiss = 1.5;                        // times the predicted time
constexpr int kMissesMax = 3;
constexpr int kMeasurePeriod = 256, kPatienceMin = 16;  // tensors

}  // namespace

ShareEstimate::ShareEstimate(int world) : sent_among_ranks_(2.0 * (world - 1) / world), patience_(kPatienceMin) {}

Share ShareEstimate::next() {
  ++issued_;
  Share share;
  if (until_measured_ == 0 || !is_known()) {  // the second tensor begins before the first one has ended
    until_measured_ = kMeasurePeriod;
    share.of_switch = is_known() ? std::clamp(best_share(), kShareMin, 1 - kRestMin) : first_share();
    share.in_turn = true;
    return share;
  }
  --until_measured_;
  const double link = link_ * probe();
  share.of_switch = best_share();
  share.pace_bytes_s = std::max(link - switch_, kPaceMin * link);
  share.link_bytes_s = link;
  share.small_to_switch = sent_among_ranks_ * switch_ >= link_;
  return share;
}

// The best if the switch's link is as fast as a worker's.
double ShareEstimate::first_share() const {
  const double world = 2 / (2 - sent_among_ranks_);
  return std::min(sent_among_ranks_ / (world + sent_among_ranks_ - 1), 1 - kRestMin);
}

// What the link carries by itself is measured too low where the ranks' bursts met in a queue, or a tensor was small.
double ShareEstimate::probe() {
  if (growth_ > 1) return growth_;
  if (--until_probed_ > 0) return 1;
  until_probed_ = kProbePeriod;
  return kLaterProbe;
}

double ShareEstimate::best_share() const {
  const double share = sent_among_ranks_ / (link_ / switch_ + sent_among_ranks_ - 1);
  return share > kAllFrom ? 1 : std::max(share, kShareMin);
}

void ShareEstimate::note(std::uint64_t tensor, const Share& share, const Outcome& outcome) {
  if (share.in_turn) return measure(tensor, share, outcome);
  // Others were divided before the last change, and say nothing about it.
  if (is_known() && tensor >= decided_) follow(share, outcome);
}

void ShareEstimate::change_switch(double bytes_s) {
  switch_ = std::min(bytes_s, link_);
  decided_ = issued_;
}

void ShareEstimate::measure(std::uint64_t tensor, const Share& share, const Outcome& outcome) {
  const double in_switch_s = to_seconds(outcome.in_switch), among_ranks_s = to_seconds(outcome.among_ranks);
  if (in_switch_s <= 0 || among_ranks_s <= 0) return;
  double at_switch = share.of_switch * outcome.size_bytes / in_switch_s;
  double link = std::max(at_switch, sent_among_ranks_ * (1 - share.of_switch) * outcome.size_bytes / among_ranks_s);
  if (tensor == 1) {  // the first two tell of the same network; connections were cold, or a rank came late
    at_switch = std::max(at_switch, switch_);
    link = std::max(link, link_);
  }
  link_ = link;
  misses_ = 0;
  growth_ = kProbe;
  until_probed_ = kProbePeriod;
  change_switch(at_switch);
}

void ShareEstimate::follow(const Share& share, const Outcome& outcome) {
  const double in_switch_s = to_seconds(outcome.in_switch), among_ranks_s = to_seconds(outcome.among_ranks);
  const double took_s = std::max(in_switch_s, among_ranks_s);
  if (took_s <= 0) return;
  const double x = share.of_switch, sent = outcome.size_bytes * (x + sent_among_ranks_ * (1 - x));
  look_for_misses(took_s, std::max(x * outcome.size_bytes / switch_, sent / link_));
  if (among_ranks_s <= 0) {  // all went through the switch
    const double at_switch = x * outcome.size_bytes / in_switch_s;
    link_ = std::max(link_, at_switch);
    if (std::abs(at_switch / switch_ - 1) > kTogether) change_switch(at_switch);
  } else if (share.link_bytes_s > std::sqrt(kLaterProbe) * link_) {  // what is let go faster holds up the other part
    // While both parts ran the link carried both, but for what the switch may have taken later.
    const double later = std::max(in_switch_s - among_ranks_s, 0.0);
    const double carried = (sent - later * switch_) / (took_s - later);
    growth_ = carried > kMuchNews * link_ ? kProbe : carried > kNews * link_ ? kLaterProbe : 1;
    link_ = std::max(carried, link_ / kLaterProbe);
    decided_ = issued_;
  } else if (in_switch_s > 0) {
    const double ratio = among_ranks_s / in_switch_s;  // above 1: the switch had ended before
    const double step = std::abs(ratio - 1) < kNoise ? std::sqrt(ratio) : std::clamp(ratio, kSlowerMin, kFasterMax);
    if (std::abs(ratio - 1) > kTogether) change_switch(switch_ * step);
  }
}

// The link may have become slower. Or the ranks wait for each other, and it is as it was.
void ShareEstimate::look_for_misses(double took_s, double predicted_s) {
  misses_ = took_s > kMiss * predicted_s ? misses_ + 1 : 0;
  if (misses_ < kMissesMax || kMeasurePeriod - until_measured_ < patience_) return;
  until_measured_ = 0;
  patience_ = std::min(2 * patience_, kMeasurePeriod);
}

}  // namespace netfold::group

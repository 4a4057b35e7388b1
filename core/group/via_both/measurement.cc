#include "group/via_both/measurement.h"

#include <algorithm>

namespace netfold::group {
namespace {

constexpr std::size_t kShortBytes = 1024;
// Long enough to tell what a link carries, and short beside the tensors that are divided.
constexpr std::size_t kLargeBytesMin = std::size_t{1} << 20, kLargeBytesMax = std::size_t{4} << 20;
constexpr std::size_t kAligned = 128;
constexpr std::size_t kOfSwitch = 4;  // it may be many times slower: it gets one part in so many

}  // namespace

Measurement::Measurement(int world, std::size_t switches, bool share_memory, std::size_t size_bytes)
    : world_(world), share_memory_(share_memory), ways_{.switches = std::vector<Ways::Switch>(switches)} {
  const std::size_t large = std::clamp(size_bytes, kLargeBytesMin, kLargeBytesMax) / kAligned * kAligned;
  const auto add_small = [&](std::optional<std::size_t> at_switch) {
    for (const bool counts : {false, true, true}) steps_.push_back({at_switch, kShortBytes, counts});
  };
  add_small({});
  for (std::size_t each = 0; each < switches; ++each) add_small(each);
  steps_.push_back({{}, large / 4, false});
  steps_.push_back({{}, large, true});
  for (std::size_t each = 0; each < switches; ++each) {
    steps_.push_back({each, large / kOfSwitch / 2, false});
    steps_.push_back({each, large / kOfSwitch, true});
  }
  zeros_.resize(2 * (large / sizeof(float) + static_cast<std::size_t>(world)));  // of a gathering: result, own part
}

CollectiveRequest Measurement::begin(Nanoseconds now) {
  begun_ = now;
  const Step& step = steps_[next_];
  CollectiveRequest request;
  request.in = request.out = zeros_.data();
  request.count = step.size_bytes / sizeof(float);
  request.algorithm.name = schedule::usual_in_rank_order(step.size_bytes, world_, share_memory_, false);
  if (!step.at_switch && step.size_bytes > kShortBytes) {
    request.collective = schedule::Collective::kAllGather;
    request.count = request.count / static_cast<std::size_t>(world_) + 1;
    request.in = zeros_.data() + zeros_.size() / 2;
    request.algorithm.name = schedule::kRing;
  }
  return request;
}

void Measurement::end(Nanoseconds now) {
  const Step& step = steps_[next_++];
  const Nanoseconds took = std::max<Nanoseconds>(now - begun_, 1);
  if (!step.counts) return;
  const auto least = [&](Nanoseconds& so_far) { so_far = so_far == 0 ? took : std::min(so_far, took); };
  if (step.size_bytes == kShortBytes) {
    least(step.at_switch ? ways_.switches[*step.at_switch].small : ways_.small_among_ranks);
  } else if (step.at_switch) {
    ways_.switches[*step.at_switch].bytes_s = static_cast<double>(step.size_bytes) / to_seconds(took);
  } else {
    const double sent = static_cast<double>(step.size_bytes) * (world_ - 1) / world_;  // each rank has its own part
    ways_.link_bytes_s = sent / to_seconds(took);
  }
}

}  // namespace netfold::group

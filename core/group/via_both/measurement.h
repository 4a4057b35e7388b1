// What all ways carry, measured before the first tensor is divided, and again when tensors take much longer than
// predicted: collectives of zeros, one after the other, each by one way alone. All ranks run the same ones; the rank
// that decides looks at how long they take.
//
// The ranks' way is measured by a ring, in which each link carries one stream: many senders that start at once at full
// speed fill the queue of the port where they meet, and what is then measured is how long a loss takes to repair.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "group/collective_request.h"
#include "group/via_both/share.h"

namespace netfold::group {

class Measurement {
 public:
  // Before a tensor of `size_bytes` on the wire: all ranks pass the same.
  Measurement(int world, std::size_t switches, bool share_memory, std::size_t size_bytes);

  bool is_over() const { return next_ == steps_.size(); }
  // The switch that it goes through; none: among the ranks, or it is over.
  std::optional<std::size_t> at_switch() const { return is_over() ? std::nullopt : steps_[next_].at_switch; }
  // The collective to run now, once.
  CollectiveRequest begin(Nanoseconds now);
  // It has ended.
  void end(Nanoseconds now);
  // Once it is over.
  Ways ways() const { return ways_; }

 private:
  struct Step {
    std::optional<std::size_t> at_switch;
    std::size_t size_bytes;
    bool counts;  // the first of each kind only gets connections and windows going
  };

  const int world_;
  const bool share_memory_;
  std::vector<Step> steps_;
  std::size_t next_ = 0;
  std::vector<float> zeros_;
  Nanoseconds begun_ = 0;
  Ways ways_ = {};
};

}  // namespace netfold::group

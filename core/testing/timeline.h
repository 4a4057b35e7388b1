// Virtual time: events happen in the order of their times, and those of one time in the order in which they were set.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace netfold::testing {

class Timeline {
 public:
  using Event = std::function<void()>;

  Nanoseconds now() const { return now_; }
  std::uint64_t events() const { return next_order_; }  // set so far

  void at(Nanoseconds when, Event event) { queue_.push({when < now_ ? now_ : when, next_order_++, std::move(event)}); }
  void after(Nanoseconds delay, Event event) { at(now_ + delay, std::move(event)); }

  // Runs the next event if it is due by `until`; otherwise turns the time to `until` and returns false.
  bool step(Nanoseconds until) {
    if (queue_.empty() || queue_.top().when > until) {
      now_ = until;
      return false;
    }
    Entry entry = std::move(const_cast<Entry&>(queue_.top()));  // popped at once
    queue_.pop();
    now_ = entry.when;
    entry.event();
    return true;
  }

 private:
  struct Entry {
    Nanoseconds when;
    std::uint64_t order;
    Event event;
    bool operator<(const Entry& other) const {  // the queue's top is the greatest
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  std::priority_queue<Entry> queue_;
  Nanoseconds now_ = 1000 * kSecond;
  std::uint64_t next_order_ = 0;
};

}  // namespace netfold::testing

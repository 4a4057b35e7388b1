// What a job's host asks the switch, and when: is this tensor folded? A pure state machine: answers and time in,
// questions and a deadline out.
//
// A host expects tensors as the workers submit them: in the same order, with the same counts and formats, so it knows
// each one's chunks. A tensor's chunks are folded by all shards of the switch, in no common order. The host asks every
// shard at once to tell it when all of that shard's chunks before the tensor's end are folded (PROTOCOL.md, "await");
// the tensor is complete when all have said so. A question or an answer may be lost, so it is asked again, more and
// more rarely: most silences are workers that compute.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "wire/lease.h"

namespace netfold::group {

class ObserverWatch {
 public:
  static constexpr Nanoseconds kAskAgainFirst = 10 * kMillisecond, kAskAgainMost = 200 * kMillisecond;

  explicit ObserverWatch(const wire::Lease& lease) : lease_(lease), is_passed_(lease.shards), is_asked_(lease.shards) {}

  // The next tensor has so many chunks.
  void expect(std::uint64_t chunks, Nanoseconds now);

  struct Question {
    std::uint16_t shard;
    std::uint32_t chunk;
  };
  // The next question, if there is one; it counts as asked.
  std::optional<Question> next(Nanoseconds now);
  // Shard of `chunk`: all of its chunks before this one are folded. False: that is not what was asked.
  bool on_complete(std::uint32_t chunk, Nanoseconds now);

  // Tensors that are complete, of those expected so far.
  std::uint64_t completed() const { return completed_; }
  bool is_idle() const { return ends_.empty(); }
  Nanoseconds deadline() const { return is_idle() ? kNever : ask_again_at_; }  // when next() has something to say

 private:
  std::uint32_t mark_of(std::uint16_t shard) const;
  void begin(Nanoseconds now);

  wire::Lease lease_;
  std::deque<std::uint64_t> ends_;  // of tensors not complete: chunks from the epoch's first to where each ends
  std::uint64_t end_ = 0;           // of all that were expected
  std::uint64_t completed_ = 0;
  std::vector<bool> is_passed_, is_asked_;  // by shard, of the oldest tensor
  Nanoseconds pause_ = kAskAgainFirst;
  Nanoseconds ask_again_at_ = kNever;
};

}  // namespace netfold::group

// A request: one collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "group/device_words.h"
#include "numbers/combine.h"
#include "numbers/format.h"
#include "schedule/exchange.h"
#include "schedule/schedule.h"

namespace netfold::group {

// `in` and `out` hold elements of `type`; they may be the same memory. Both must live, and stay untouched by the
// caller, until the collective completes. A failed one loses nothing that was handed over: `in` is as it was, also
// where it is `out`. A result of its own then holds nothing in particular: to keep what it held would cost every
// all-reduce half as much again in memory traffic. A barrier has no memory; only the root's `in` is read in a
// broadcast, and only its `out` is written in a reduce.
//
// Elements of every type may travel as they lie in memory, which is no format (kNone): then all operations are there.
struct CollectiveRequest {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements; of a rank's own part of a reduce-scatter and an all-gather
  numbers::ElementType type = numbers::ElementType::kFp32;
  numbers::Format format = numbers::Format::kFp32;
  bool average = false;
  schedule::Collective collective = schedule::Collective::kAllReduce;
  int root = 0;  // of a broadcast, reduce, gather or scatter
  // The schedule that ranks follow among themselves. A backend with a switch has none to choose.
  schedule::Algorithm algorithm = {};
  // Of block floating point among ranks. At a switch, a job has one shape for all its requests.
  numbers::BfpShape bfp = {};
  // If this is a part of a tensor: how many elements the tensor has, and which of them is the first here. Else 0.
  std::uint64_t whole = 0, part_at = 0;
  // Of some elements of every rank's part of a reduce-scatter or all-gather: how many elements of `in`, or of `out`,
  // lie between where those of one rank and those of the next begin. 0: they follow each other.
  std::size_t part_stride = 0;
  numbers::Operation operation = numbers::Operation::kSum;  // others only of elements as they lie in memory
  // Of an all-to-all, gather or scatter: how many elements go where. `count` is not used; `in` and `out` must not
  // overlap.
  std::shared_ptr<const schedule::Parts> parts = {};
  // Of a send or receive: the other rank (kNoRank: whichever sends), the tag that both must give, and where a receive
  // leaves the sender's rank (null: nowhere). Messages are beside the collectives: they have an order of their own.
  int peer = kNoRank;
  std::uint64_t tag = 0;
  std::int32_t* sender = nullptr;
  // `in` and `out` hold what travels, as a device has encoded it and will decode it: whole blocks of `format`, which is
  // bfp. Only of the sum of an all-reduce. `count` still counts elements.
  bool is_encoded = false;
  // If a device copies `in` here, and `out` back.
  DeviceWords words = {};

  bool is_in_place() const { return in == out; }
  std::size_t stride() const { return part_stride > 0 ? part_stride : count; }
  // Bytes of the first elements of `in` or `out`; of an encoded request: whole blocks.
  std::size_t bytes_of(std::size_t elements) const {
    return is_encoded ? numbers::encoded_bytes({format, bfp}, elements) : elements * numbers::size_bytes(type);
  }
};

// Of an all-reduce, reduce-scatter, all-gather or broadcast among so many ranks: the bytes that a rank reads, and
// writes.
std::size_t in_bytes(const CollectiveRequest& request, int world);
std::size_t out_bytes(const CollectiveRequest& request, int world);
// Whether the result is written over some of what is read.
bool overwrites_input(const CollectiveRequest& request, int world);

// kInvalidArgument if it makes no sense.
Result<void> check(const CollectiveRequest& request);
// The same for a switch, which folds what has a format, and copies elements as they lie in memory: all-reduce,
// reduce-scatter, all-gather, broadcast and barrier.
Result<void> check_in_network(const CollectiveRequest& request, int world);
// The same for a backend that serves all-reduce only.
Result<void> check_all_reduce(const CollectiveRequest& request);

}  // namespace netfold::group

// From what is asked for to plans that can be run: large tensors in slices, every shape planned once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/all_reduce.h"
#include "engine/collective/executor.h"
#include "engine/collective/layout.h"

namespace netfold::engine {

// Of a large tensor; only the last slice is shorter. 2 MiB: those of eight ranks share a cache of 16 MiB.
constexpr std::size_t kSliceElements = std::size_t{1} << 19;

// Which collective, and how; its memory is AllReduce's, whose `count` is a rank's own part of a reduce-scatter and an
// all-gather. A barrier has no memory; only the root's `in` is read in a broadcast.
struct CollectiveOptions {
  schedule::Collective collective = schedule::Collective::kAllReduce;
  int root = 0;  // of a broadcast
  std::string algorithm = "ring";
  int sub_nodes = 0, switches = 0;  // as schedule::Request
  int group = 0;
  std::string between = "ring";
  numbers::BfpShape bfp = {};
  std::uint64_t whole = 0, part_at = 0;  // elements of the tensor that this is a part of, and where; 0: of none

  bool operator==(const CollectiveOptions&) const = default;
};

// What ranks must agree on; the number is the executor's to give.
Terms terms_of(const AllReduce& request, const CollectiveOptions& options);

class Plans {
 public:
  Plans(int world, int rank) : world_(world), rank_(rank) {}

  // Whether some ranks are reached over a network; before the first plan is made.
  void set_networked(bool is_networked) { is_networked_ = is_networked; }

  // The rank at each physical position, for hdrm (schedule::Request); before the first plan is made.
  void set_order(std::vector<int> order) { order_ = std::move(order); }

  // kInvalidArgument if the algorithm cannot serve this.
  Result<std::vector<Slice>> slices_of(const AllReduce& request, const CollectiveOptions& options);

 private:
  Result<std::shared_ptr<const Plan>> plan_for(const Layout& slice, bool rounds, bool in_turns,
                                               const CollectiveOptions& options);

  int world_, rank_;
  bool is_networked_ = false;
  std::vector<int> order_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
  // What was asked for last is what is asked for next, most of the time.
  struct Recent {
    CollectiveOptions options;
    std::size_t count = 0;
    bool rounds = false;
    std::vector<Slice> slices;
  };
  Recent recent_;
};

}  // namespace netfold::engine

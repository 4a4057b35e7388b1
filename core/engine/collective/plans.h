// From what is asked for to plans that can be run: large tensors in slices, every shape planned once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/all_reduce.h"
#include "engine/collective/executor.h"

namespace netfold::engine {

// How; what is AllReduce's.
struct CollectiveOptions {
  std::string algorithm = "ring";
  int sub_nodes = 0, switches = 0;  // as schedule::Request
  int group = 0;
  std::string between = "ring";
  numbers::BfpShape bfp = {};
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
  Result<std::shared_ptr<const Plan>> plan_for(std::size_t count, bool rounds, bool in_turns,
                                               const CollectiveOptions& options);

  int world_, rank_;
  bool is_networked_ = false;
  std::vector<int> order_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
};

}  // namespace netfold::engine

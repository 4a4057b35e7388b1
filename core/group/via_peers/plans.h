// From what is asked for to plans that can be run: large tensors in slices, every shape planned once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "group/collective_request.h"
#include "group/via_peers/buffer_layout.h"
#include "group/via_peers/executor.h"

namespace netfold::group {

// Of a large tensor; only the last slice is shorter. 2 MiB: those of eight ranks share a cache of 16 MiB.
constexpr std::size_t kSliceElements = std::size_t{1} << 19;

// What the schedule of a buffer is asked for. `order`: where the ranks sit, for hdrm.
schedule::Request schedule_request(const BufferLayout& buffer, const CollectiveRequest& request, int world, int rank,
                                   const std::vector<int>& order);

// What ranks must agree on; the number is the executor's to give.
Terms terms_of(const CollectiveRequest& request);

class Plans {
 public:
  Plans(int world, int rank) : world_(world), rank_(rank) {}

  // Whether some ranks are reached over a network; before the first plan is made.
  void set_networked(bool is_networked) { is_networked_ = is_networked; }

  // Where the ranks sit, for hdrm (schedule::Request); before the first plan is made.
  void set_order(std::vector<int> order) { order_ = std::move(order); }

  // kInvalidArgument if the algorithm cannot serve this.
  Result<std::vector<Slice>> slices_of(const CollectiveRequest& request);

 private:
  Result<std::shared_ptr<const Plan>> plan_for(const BufferLayout& slice, const CollectiveRequest& request,
                                               bool in_turns);

  int world_, rank_;
  bool is_networked_ = false;
  std::vector<int> order_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
  // What was asked for last is what is asked for next, most of the time.
  CollectiveRequest last_;
  std::vector<Slice> last_slices_;
};

}  // namespace netfold::group

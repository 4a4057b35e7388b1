// A tensor is whole or untouched: what is changed in place is either the whole result or what it was; what is not
// changed in place stays as it is; nobody writes beyond its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "group/collective_request.h"
#include "testing/history.h"
#include "testing/plan.h"

namespace netfold::testing {

// A rank's memory for one collective.
class Tensor {
 public:
  enum class State { kReady, kSubmitted, kFinished, kFailed };

  // Filled from the seed of the rank's process (draw_tensor).
  Tensor(const TensorPlan& plan, int rank, int world, std::uint64_t seed, std::size_t index);

  group::CollectiveRequest request() { return with_memory(plan_.request); }
  // Of one that takes no more memory than the plan's.
  group::CollectiveRequest with_memory(group::CollectiveRequest request);
  std::span<const std::byte> result() const;

  State state = State::kReady;

 private:
  friend class WholeOrUntouchedChecker;
  // The result's is in `out_`, or in place in `in_`.
  struct Places {
    std::size_t in_at, in_bytes, out_at, out_bytes;
  };
  Places places_of(const group::CollectiveRequest& request) const;

  TensorPlan plan_;
  int rank_, world_;
  Places places_;
  std::vector<std::byte> original_;
  std::vector<std::byte> in_, out_;  // with guards behind; `out_` is empty if the result is in `in_`
};

class WholeOrUntouchedChecker {
 public:
  explicit WholeOrUntouchedChecker(History& history) : history_(history) {}

  void check(Party rank, std::size_t index, const Tensor& tensor);

 private:
  History& history_;
};

}  // namespace netfold::testing

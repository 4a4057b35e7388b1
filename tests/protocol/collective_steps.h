// Collectives of all kinds, each with its memory on all ranks and with what must be in it at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/prng.h"
#include "group/collective_request.h"

namespace netfold::tests {

using Tensor = std::vector<float>;
using Fold = std::function<Tensor(const std::vector<Tensor>&)>;
using Submit = std::function<void(std::uint16_t rank, const group::CollectiveRequest&)>;

// Where `out` lies: in memory of its own, on this rank's own part, or at the start of the same memory.
enum class Place { kApart, kOwnPart, kSameStart };

// One collective on all ranks: their memory, and what must be in it at the end.
struct Step {
  schedule::Collective collective;
  Place place;
  int root = 0;
  std::size_t count = 0;  // as of a request
  std::vector<Tensor> in, out, expected_in, expected_out;

  Step(schedule::Collective collective, std::uint16_t world, std::size_t count, Prng& prng, const Fold& fold);
  void submit(std::uint16_t rank, const Submit& to);
  void expect_right(std::uint16_t rank) const;
};

Tensor part_of(const Tensor& whole, std::size_t rank, std::size_t count);

// Two of each kind, and a barrier, in any order.
std::vector<Step> random_steps(std::uint16_t world, std::size_t count_max, Prng& prng, const Fold& fold);

// The sum that one switch makes.
Tensor plain(const std::vector<Tensor>& tensors);

}  // namespace netfold::tests

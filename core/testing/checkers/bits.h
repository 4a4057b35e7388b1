// No wrong bit: what a rank is given follows from what all ranks of the same life handed in. At a switch it is the
// plain pairwise fold, among ranks what the schedule says (plain_schedule.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "testing/history.h"
#include "testing/plan.h"

namespace netfold::testing {

// What a rank hands in as its tensor: drawn from the seed of its process.
std::vector<std::byte> draw_tensor(numbers::ElementType type, std::size_t count, std::uint64_t process_seed,
                                   std::size_t index);

class BitsChecker {
 public:
  BitsChecker(const Plan& plan, History& history) : plan_(plan), history_(history) {}

  // A process has learned that it is a rank of this life.
  void on_admitted(std::uint64_t life, Party rank, std::uint64_t process_seed);
  // The rank's tensor is finished, and this is what it holds.
  void check(std::uint64_t life, Party rank, std::size_t index, std::span<const std::byte> result);

 private:
  using Results = std::vector<std::vector<std::byte>>;  // by rank

  const Results& expected(std::uint64_t life, int job, std::size_t index);

  const Plan& plan_;
  History& history_;
  std::map<std::uint64_t, std::map<int, std::uint64_t>> seeds_;  // life -> rank -> seed
  std::map<std::pair<std::uint64_t, std::size_t>, Results> expected_;
};

}  // namespace netfold::testing

// The simulator's small words. Hosts, nodes, links and tasks are numbered by int, where -1 means no number; vectors are
// indexed by std::size_t.
#pragma once

#include <cassert>
#include <cstddef>
#include <string>
#include <utility>

#include "base/result.h"

namespace netfold::sim {

inline std::size_t index(int number) {
  assert(number >= 0);
  return static_cast<std::size_t>(number);
}

// A cluster or a workload that has no meaning.
inline tl::unexpected<Error> wrong(std::string what, int rank = kNoRank) {
  return fail(ErrorCode::kInvalidArgument, std::move(what), rank);
}

constexpr double kBitsPerByte = 8;

}  // namespace netfold::sim

// Hosts, nodes, links and tasks are numbered by int, where -1 means no number; vectors are indexed by std::size_t.
#pragma once

#include <cassert>
#include <cstddef>

namespace netfold::sim {

inline std::size_t index(int number) {
  assert(number >= 0);
  return static_cast<std::size_t>(number);
}

}  // namespace netfold::sim

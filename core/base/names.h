// Names of enumerators that count from 0 to kCount: a table that forgets one does not compile.
#pragma once

#include <cstddef>

namespace netfold {

template <class Enum, std::size_t count>
constexpr const char* name_in(const char* const (&names)[count], Enum value) {
  static_assert(count == static_cast<std::size_t>(Enum::kCount), "a name for each enumerator");
  return value < Enum::kCount ? names[static_cast<std::size_t>(value)] : "unknown";
}

}  // namespace netfold

// Lists that people write in settings: "a,b".
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace netfold {

// The texts between the commas, at least one; each may be empty.
inline std::vector<std::string> comma_list(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    parts.emplace_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

}  // namespace netfold

// Whether two tensors are the same bit for bit: a NaN equals itself, and two zeros of different signs differ.
#pragma once

#include <cstring>
#include <span>

namespace netfold::tests {

// By memcmp: sanitizers check that once, and a loop at each element. (It may not be given the null of an empty tensor.)
template <typename A, typename B>
bool are_same_bits(const A& a, const B& b) {
  const auto bytes_of_a = std::as_bytes(std::span(a));
  const auto bytes_of_b = std::as_bytes(std::span(b));
  return bytes_of_a.size() == bytes_of_b.size() &&
         (bytes_of_a.empty() || std::memcmp(bytes_of_a.data(), bytes_of_b.data(), bytes_of_a.size()) == 0);
}

}  // namespace netfold::tests

// The seed of a test that draws at random: NETFOLD_SEED where it is set (`make test` draws one and prints it), else 1.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ranges>

namespace netfold::tests {

inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

inline std::uint64_t random_seed() {
  return from_environment("NETFOLD_SEED", 1);
}

// A sanitizer makes a test five to thirty times as long. It looks for races and bad addresses, not for wrong sums. So a
// test has fewer cases of each kind there.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How often a test does the same with other numbers.
constexpr std::uint64_t rounds(std::uint64_t count) {
  return kSanitized ? count / 10 + 1 : count;
}

// So many seeds, from that one on. A test that fails at one of them is repeated by NETFOLD_SEED=<that one>.
inline auto random_seeds(std::uint64_t count) {
  return std::views::iota(random_seed(), random_seed() + rounds(count));
}

}  // namespace netfold::tests

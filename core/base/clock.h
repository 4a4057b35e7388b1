// Time is handed to protocol code, which never reads a clock itself; only engines and programs call now().
#pragma once

#include <chrono>
#include <cstdint>

namespace netfold {

using Nanoseconds = std::int64_t;  // since an arbitrary start that is the same for one process

constexpr Nanoseconds kNever = INT64_MAX;
constexpr Nanoseconds kMicrosecond = 1'000;
constexpr Nanoseconds kMillisecond = 1'000'000;
constexpr Nanoseconds kSecond = 1'000'000'000;

inline Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline Nanoseconds from_seconds(double seconds) {
  return static_cast<Nanoseconds>(seconds * 1e9);
}
inline double to_seconds(Nanoseconds time) {
  return static_cast<double>(time) * 1e-9;
}

}  // namespace netfold

// A log that a stranger cannot flood: some lines a while, then a count of those left out. Lines about jobs have a
// number of their own, so that an operator finds the failure of a job among any number of strangers.
#pragma once

#include <fmt/core.h>

#include <array>
#include <functional>
#include <string>

#include "base/clock.h"
#include "switch/jobs/job_table.h"

namespace netfold::switching {

class LogThrottle {
 public:
  using Sink = LogSink;

  static constexpr int kLinesMax = 200;  // of each subject
  static constexpr Nanoseconds kPeriod = 10 * kSecond;

  explicit LogThrottle(Sink sink) : sink_(std::move(sink)) {}

  void line(const LogLine& line, Nanoseconds at) {
    if (!sink_) return;
    if (at >= period_ends_) {
      if (left_out_ > 0) {
        sink_({LogLevel::kWarning, fmt::format("{} lines of the log were left out", left_out_), LogSubject::kJob});
      }
      period_ends_ = at + kPeriod;
      lines_ = {};
      left_out_ = 0;
    }
    if (++lines_[static_cast<std::size_t>(line.subject)] <= kLinesMax) {
      sink_(line);
    } else {
      ++left_out_;
    }
  }

 private:
  Sink sink_;
  Nanoseconds period_ends_ = 0;
  std::array<std::uint64_t, 2> lines_ = {};  // by subject
  std::uint64_t left_out_ = 0;
};

}  // namespace netfold::switching

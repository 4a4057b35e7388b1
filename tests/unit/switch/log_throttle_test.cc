// A sender of nonsense cannot fill the disk: the log counts the lines that it left out.
#include "switch/log_throttle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace netfold::switching {
namespace {

TEST(LogThrottle, LeavesLinesOutAndSaysHowMany) {
  std::vector<std::string> lines;
  LogThrottle log([&](const LogLine& line) { lines.push_back(line.text); });
  constexpr int kOffered = 10'000;
  for (int i = 0; i < kOffered; ++i) log.line({LogLevel::kWarning, "a strange packet", LogSubject::kJob}, kSecond + i);
  ASSERT_EQ(lines.size(), std::size_t{LogThrottle::kLinesMax});

  log.line({LogLevel::kWarning, "later", LogSubject::kJob}, kSecond + LogThrottle::kPeriod);
  ASSERT_EQ(lines.size(), std::size_t{LogThrottle::kLinesMax} + 2);
  EXPECT_THAT(lines[lines.size() - 2], ::testing::StartsWith(std::to_string(kOffered - LogThrottle::kLinesMax)));
  EXPECT_EQ(lines.back(), "later");
}

TEST(LogThrottle, StrangersDoNotUseUpTheLinesAboutJobs) {
  std::vector<std::string> lines;
  LogThrottle log([&](const LogLine& line) { lines.push_back(line.text); });
  for (int i = 0; i < 10'000; ++i) log.line({LogLevel::kWarning, "refused", LogSubject::kStranger}, kSecond);
  log.line({LogLevel::kWarning, "job 'a' failed", LogSubject::kJob}, kSecond);
  EXPECT_EQ(lines.back(), "job 'a' failed");
}

TEST(LogThrottle, IsSilentAboutNothingLeftOut) {
  std::vector<std::string> lines;
  LogThrottle log([&](const LogLine& line) { lines.push_back(line.text); });
  for (int period = 0; period < 5; ++period) {
    log.line({LogLevel::kInfo, "one", LogSubject::kJob}, (period + 1) * LogThrottle::kPeriod);
  }
  EXPECT_EQ(lines, std::vector<std::string>(5, "one"));
}

}  // namespace
}  // namespace netfold::switching

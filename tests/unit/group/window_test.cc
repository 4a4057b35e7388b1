#include "group/via_switch/window.h"

#include <gtest/gtest.h>

namespace netfold::group {
namespace {

constexpr Nanoseconds kWindowStart = kSecond;

wire::Lease lease(std::uint32_t slots = 64) {
  wire::Lease lease;
  lease.slots = slots;
  return lease;
}

std::vector<Window::Position> drain(Window& window, Nanoseconds now, bool probes) {
  std::vector<Window::Position> positions;
  while (const auto transmission = window.next(now)) {
    if (transmission->kind == wire::Kind::kEcho) continue;
    EXPECT_EQ(transmission->kind, probes ? wire::Kind::kProbe : wire::Kind::kContribution);
    positions.push_back(transmission->position);
  }
  return positions;
}

TEST(Window, SendsAWindowAndThenOneForEachResult) {
  Window window(lease(64), {.window_chunks = 4});
  window.extend(10, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, false), (std::vector<Window::Position>{0, 1, 2, 3}));
  EXPECT_TRUE(window.on_result(0, kWindowStart + 1));
  EXPECT_EQ(drain(window, kWindowStart + 1, false), (std::vector<Window::Position>{4}));
  EXPECT_TRUE(window.on_result(2, kWindowStart + 2));  // results may overtake each other
  EXPECT_EQ(drain(window, kWindowStart + 2, false), (std::vector<Window::Position>{5}));
  EXPECT_EQ(window.base(), 1u);
}

TEST(Window, NeverRunsMoreThanItsSlotsAheadOfTheOldest) {
  Window window(lease(8), {.window_chunks = 8});
  window.extend(100, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, false).size(), 8u);
  for (Window::Position position = 1; position < 8; ++position) window.on_result(position, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, true), (std::vector<Window::Position>{0})) << "a probe: chunk 8 needs its slot";
  window.on_result(0, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, false).size(), 8u);
}

TEST(Window, ASecondResultIsNoNews) {
  Window window(lease(), {});
  window.extend(2, kWindowStart);
  drain(window, kWindowStart, false);
  EXPECT_TRUE(window.on_result(1, kWindowStart));
  EXPECT_FALSE(window.on_result(1, kWindowStart));
  EXPECT_TRUE(window.on_result(0, kWindowStart));
  EXPECT_FALSE(window.position_of(0).has_value());
  EXPECT_FALSE(window.position_of(2).has_value()) << "never sent";
  EXPECT_TRUE(window.is_idle());
  EXPECT_EQ(window.deadline(), kNever);
}

TEST(Window, ProbesAChunkThatEightLaterOnesOvertook) {
  Window window(lease(), {.window_chunks = 16});
  window.extend(16, kWindowStart);
  drain(window, kWindowStart, false);
  for (Window::Position position = 1; position < 8; ++position) window.on_result(position, kWindowStart);
  EXPECT_FALSE(window.next(kWindowStart));
  window.on_result(8, kWindowStart);
  const auto probe = window.next(kWindowStart);
  ASSERT_TRUE(probe);
  EXPECT_EQ(probe->kind, wire::Kind::kProbe);
  EXPECT_EQ(probe->position, 0u);
  EXPECT_FALSE(window.next(kWindowStart)) << "once";
}

TEST(Window, AfterATimeOutEachEchoDoublesTheProbes) {
  Window window(lease(), {.window_chunks = 16, .start_chunks = 16});
  window.extend(16, kWindowStart);
  drain(window, kWindowStart, false);  // with an echo that carries the number of chunk 0
  window.on_echo(0, kWindowStart + kMillisecond);
  Nanoseconds now = window.deadline();
  window.on_time(now);
  EXPECT_EQ(drain(window, now, true), (std::vector<Window::Position>{0}));
  window.on_echo(16, now += kMillisecond);  // the next chunk, that there is not
  EXPECT_EQ(drain(window, now, true), (std::vector<Window::Position>{1, 2}));
  for (Window::Position position = 0; position < 4; ++position) window.on_result(position, now);
  window.on_echo(16, now += kMillisecond);
  EXPECT_EQ(drain(window, now, true), (std::vector<Window::Position>{4, 5, 6, 7}));
  window.on_echo(16, now += kMillisecond);
  EXPECT_EQ(drain(window, now, true), (std::vector<Window::Position>{8, 9, 10, 11, 12, 13, 14, 15}));
  window.on_echo(16, now += kMillisecond);
  EXPECT_TRUE(drain(window, now, true).empty());
}

TEST(Window, SendsAgainOnlyWhatTheSwitchMisses) {
  Window window(lease(), {});
  window.extend(3, kWindowStart);
  drain(window, kWindowStart, false);
  window.on_missing(1, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, false), (std::vector<Window::Position>{1}));
  window.on_result(2, kWindowStart);
  window.on_missing(2, kWindowStart);
  EXPECT_FALSE(window.next(kWindowStart)) << "its result is here";
}

TEST(Window, WatchesARetransmissionToo) {
  Window window(lease(256), {.window_chunks = 64, .start_chunks = 64});
  window.extend(200, kWindowStart);
  drain(window, kWindowStart, false);
  window.on_missing(0, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, false), (std::vector<Window::Position>{0}));
  for (Window::Position position = 1; position < 64; ++position) window.on_result(position, kWindowStart);
  drain(window, kWindowStart, false);  // 64 .. 126 were sent after the retransmission of 0
  for (Window::Position position = 64; position < 72; ++position) window.on_result(position, kWindowStart);
  std::size_t probes = 0;
  window.on_result(72, kWindowStart);
  while (const auto transmission = window.next(kWindowStart)) {
    if (transmission->kind == wire::Kind::kProbe && transmission->position == 0) ++probes;
  }
  EXPECT_EQ(probes, 1u);
}

TEST(Window, InSilenceProbesOneThenTwoThenFour) {
  Window window(lease(), {.window_chunks = 16, .timeout_start = 50 * kMillisecond, .timeout_max = kSecond});
  window.extend(16, kWindowStart);
  drain(window, kWindowStart, false);
  Nanoseconds time = kWindowStart;
  Nanoseconds waited = 0;
  for (const std::size_t expected : {1u, 2u, 4u, 8u, 16u, 16u}) {
    EXPECT_GT(window.deadline(), time);
    EXPECT_GE(window.deadline() - time, waited) << "waits double";
    waited = window.deadline() - time;
    window.on_time(window.deadline() - 1);
    EXPECT_FALSE(window.next(time));
    time = window.deadline();
    window.on_time(time);
    EXPECT_EQ(drain(window, time, true).size(), expected);
  }
}

TEST(Window, MeasuresTheRoundTripButNotOfRetransmissions) {
  Window window(lease(), {});
  window.extend(2, kWindowStart);
  drain(window, kWindowStart, false);
  window.on_missing(0, kWindowStart);
  drain(window, kWindowStart + kSecond, false);
  window.on_result(0, kWindowStart + 2 * kSecond);
  EXPECT_EQ(window.stats().round_trip, 0);
  window.on_result(1, kWindowStart + 3 * kMillisecond);
  EXPECT_EQ(window.stats().round_trip, 3 * kMillisecond);
}

TEST(Window, PositionsOutliveTheWrapOfChunkNumbers) {
  wire::Lease wrapping = lease(8);
  wrapping.first_chunk = 0xfffffffe;
  Window window(wrapping, {.window_chunks = 8});
  window.extend(8, kWindowStart);
  EXPECT_EQ(drain(window, kWindowStart, false).size(), 8u);
  EXPECT_EQ(window.position_of(0xffffffff), 0xffffffffu);
  EXPECT_EQ(window.position_of(1), 0x100000001u);
  EXPECT_FALSE(window.position_of(0xfffffffd)) << "just before the base, not far after it";
  EXPECT_FALSE(window.position_of(6)) << "never sent";
}

TEST(Window, RemembersWhatTheSwitchSaysOfTheOldest) {
  Window window(lease(), {});
  window.extend(2, kWindowStart);
  drain(window, kWindowStart, false);
  window.on_waiting(1, 5, kWindowStart);
  EXPECT_FALSE(window.missing_rank());
  window.on_waiting(0, 5, kWindowStart);
  EXPECT_EQ(window.missing_rank(), 5);
  window.on_result(0, kWindowStart);
  EXPECT_FALSE(window.missing_rank()) << "another chunk is the oldest now";
}

}  // namespace
}  // namespace netfold::group

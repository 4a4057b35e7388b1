#include <gtest/gtest.h>

#include "group/via_switch/congestion_window.h"
#include "group/via_switch/granted_rate.h"
#include "group/via_switch/path_delay.h"

namespace netfold::group {
namespace {

constexpr Nanoseconds kCongestionStart = kSecond;
constexpr Queue kShort{}, kLong{.queueing = 0.9, .is_short = false, .is_long = true, .is_built = true};

// The echo of `chunk` goes and comes back.
void echo(PathDelay& delay, std::uint32_t chunk, Nanoseconds at, Nanoseconds round_trip) {
  delay.on_sent(chunk, at);
  EXPECT_EQ(delay.on_echo(chunk, at + round_trip), round_trip);
}

TEST(PathDelay, KnowsTheQueueFromTheLeastAndTheLongestRoundTrip) {
  PathDelay delay;
  EXPECT_EQ(delay.queue(kCongestionStart).queueing, 0);
  EXPECT_FALSE(delay.queue(kCongestionStart).is_long);
  echo(delay, 1, kCongestionStart, 100 * kMicrosecond);
  EXPECT_EQ(delay.queue(kCongestionStart).queueing, 0);
  echo(delay, 2, kCongestionStart + kMillisecond, 400 * kMicrosecond);
  EXPECT_DOUBLE_EQ(delay.queue(kCongestionStart + kMillisecond).queueing, 0.75);
  EXPECT_TRUE(delay.queue(kCongestionStart + kMillisecond).is_long);
  echo(delay, 3, kCongestionStart + 2 * kMillisecond, 200 * kMicrosecond);
  EXPECT_DOUBLE_EQ(delay.queue(kCongestionStart + 2 * kMillisecond).queueing, 0.5);
  EXPECT_FALSE(delay.queue(kCongestionStart + 2 * kMillisecond).is_long);
  EXPECT_FALSE(delay.queue(kCongestionStart + 2 * kMillisecond).is_built) << "a busy processor may cause as much";
  echo(delay, 4, kCongestionStart + 3 * kMillisecond, 2 * kMillisecond);
  EXPECT_TRUE(delay.queue(kCongestionStart + 5 * kMillisecond).is_built);
}

TEST(PathDelay, AnEchoThatStaysAwayCounts) {
  PathDelay delay;
  echo(delay, 1, kCongestionStart, 100 * kMicrosecond);
  delay.on_sent(2, kCongestionStart);
  EXPECT_DOUBLE_EQ(delay.queue(kCongestionStart + kMillisecond).queueing, 0.9);
  EXPECT_FALSE(delay.wants_echo(kCongestionStart + kMillisecond)) << "one at a time";
  EXPECT_TRUE(delay.wants_echo(kCongestionStart + kSecond)) << "it is lost";
  EXPECT_FALSE(delay.on_echo(7, kCongestionStart + kMillisecond)) << "an answer to another echo";
}

TEST(PathDelay, SendsOneEchoForSixteenChunks) {
  PathDelay delay;
  std::uint32_t echoes = 0;
  for (std::uint32_t chunk = 0; chunk < 1600; ++chunk) {
    delay.on_contribution();
    const Nanoseconds now = kCongestionStart + chunk * kMillisecond;
    if (!delay.wants_echo(now)) continue;
    echo(delay, chunk, now, kMicrosecond);
    ++echoes;
  }
  EXPECT_LE(echoes, 8u + 1600 / 16);
  EXPECT_GE(echoes, 1600u / 16);
  for (int chunk = 0; chunk < 100; ++chunk) delay.on_contribution();
  const Nanoseconds now = kCongestionStart + 2000 * kMillisecond;
  echo(delay, 7, now, kMicrosecond);
  for (int chunk = 0; chunk < 100; ++chunk) delay.on_contribution();
  EXPECT_FALSE(delay.wants_echo(now + kMillisecond - 1)) << "at most one a millisecond";
  EXPECT_TRUE(delay.wants_echo(now + kMillisecond));
}

TEST(PathDelay, ForgetsAShortRoundTripOfLongAgo) {
  PathDelay delay;
  echo(delay, 1, kCongestionStart, 100 * kMicrosecond);
  for (int second = 1; second < 60; ++second) echo(delay, 2, kCongestionStart + second * kSecond, kMillisecond);
  EXPECT_EQ(delay.queue(kCongestionStart + 60 * kSecond).queueing, 0) << "the path has become longer";
}

TEST(PathDelay, DoesNotMeasureAnEchoThatMayBeAnotherOne) {
  PathDelay delay;
  echo(delay, 1, kCongestionStart, 10 * kMillisecond);
  Nanoseconds now = kCongestionStart + kSecond;
  delay.on_sent(7, now);
  delay.on_sent(7, now += kSecond);  // the first one was given up, but was only late
  EXPECT_TRUE(delay.on_echo(7, now + kMicrosecond)) << "it is an answer";
  EXPECT_EQ(delay.latest(), 10 * kMillisecond);
  delay.on_sent(7, now += kMillisecond);
  EXPECT_TRUE(delay.on_echo(7, now + kMicrosecond)) << "the second answer";
  EXPECT_EQ(delay.least(), 10 * kMillisecond);
  delay.on_sent(8, now);
  EXPECT_TRUE(delay.on_echo(8, now)) << "within one round of the caller, whose time stands still";
  EXPECT_EQ(delay.least(), 10 * kMillisecond);
}

TEST(PathDelay, WaitsLongerForEachEchoThatDoesNotComeBack) {
  PathDelay delay;
  echo(delay, 1, kCongestionStart, 100 * kMicrosecond);
  const auto patience = [&](std::uint32_t chunk) {
    Nanoseconds away = 0;
    delay.on_sent(chunk, kCongestionStart);
    while (!delay.wants_echo(kCongestionStart + away)) away += kMillisecond;
    return away;
  };
  const Nanoseconds first = patience(2), second = patience(3), third = patience(4);
  EXPECT_GE(second, 2 * first - kMillisecond);
  EXPECT_GE(third, 2 * second - kMillisecond) << "a queue that has become long is measured in the end";
  EXPECT_TRUE(delay.on_echo(4, kCongestionStart + kMillisecond));
  EXPECT_LE(patience(5), first + kMillisecond);
}

// An echo whose ways up and down take so long. The switch's clock is ahead of the worker's.
void echo_by_ways(PathDelay& delay, Nanoseconds at, Nanoseconds ahead, Nanoseconds up, Nanoseconds down) {
  delay.on_sent(1, at);
  EXPECT_EQ(delay.on_echo(1, at + up + down, wire::echo_time(at + up + ahead)), up + down);
}

class Ways : public ::testing::TestWithParam<Nanoseconds> {};
INSTANTIATE_TEST_SUITE_P(ClockIsAheadBy, Ways,
                         ::testing::Values(Nanoseconds{0}, 7 * kMillisecond, 400 * kMillisecond, -600 * kMillisecond,
                                           86'400 * kSecond));

TEST_P(Ways, TheSwitchsTimeTellsThemApart) {
  PathDelay delay;
  Nanoseconds now = kCongestionStart;
  EXPECT_FALSE(delay.queue(now, Direction::kUp).is_known);
  echo_by_ways(delay, now, GetParam(), 50 * kMicrosecond, 50 * kMicrosecond);
  const auto part = [&](Direction direction) { return delay.queue(now, direction).queueing; };
  for (int wave = 0; wave < 200; ++wave) {  // and the 16 bits come round
    echo_by_ways(delay, now += 10 * kMillisecond, GetParam(), 9050 * kMicrosecond, 950 * kMicrosecond);
    now += 10 * kMillisecond;
    EXPECT_NEAR(part(Direction::kUp), 0.9, 0.01);
    EXPECT_NEAR(part(Direction::kDown), 0.09, 0.01);
    EXPECT_TRUE(delay.queue(now, Direction::kUp).is_built);
    echo_by_ways(delay, now, GetParam(), 50 * kMicrosecond, 4950 * kMicrosecond);
    now += 5 * kMillisecond;
    EXPECT_NEAR(part(Direction::kUp), 0, 0.01);
    EXPECT_NEAR(part(Direction::kDown), 0.98, 0.01);
    EXPECT_TRUE(delay.queue(now, Direction::kUp).is_short);
    EXPECT_TRUE(delay.queue(now, Direction::kDown).is_long);
  }
}

TEST(PathDelay, DoesNotTellTheWaysApartWithoutTheSwitchsTime) {
  PathDelay delay;
  echo(delay, 1, kCongestionStart, 100 * kMicrosecond);
  echo(delay, 2, kCongestionStart + kSecond, 10 * kMillisecond);
  EXPECT_FALSE(delay.queue(kCongestionStart + kSecond, Direction::kDown).is_known) << "an older switch";
  EXPECT_TRUE(delay.queue(kCongestionStart + kSecond, Direction::kBoth).is_known);
  PathDelay slow;
  echo_by_ways(slow, kCongestionStart, 0, 100 * kMillisecond, 200 * kMillisecond);
  EXPECT_FALSE(slow.queue(kCongestionStart + kSecond, Direction::kDown).is_known) << "half the range of that time";
}

TEST(CongestionWindow, DoublesARoundTripUntilThereIsAQueue) {
  CongestionWindow window(4, 256);
  for (int result = 0; result < 4; ++result) window.on_result(Filled::kUntilNow, kShort);
  EXPECT_EQ(window.chunks(), 8u);
  for (int result = 0; result < 100; ++result) window.on_result(Filled::kUntilNow, kLong);
  EXPECT_EQ(window.chunks(), 9u) << "then by one for a hundred results";
}

// Its rate is its window's share of both windows: what it lost to the other stream must come back soon.
TEST(CongestionWindow, OfOneDirectionGrowsFastWhileItsOwnQueueIsShort) {
  CongestionWindow window(100, 256);
  window.on_loss(5, 100, kLong);
  ASSERT_EQ(window.chunks(), 70u);
  for (int result = 0; result < 80; ++result) window.on_result(Filled::kUntilNow, kShort, Direction::kUp);
  EXPECT_EQ(window.chunks(), 80u);
  for (int result = 0; result < 80; ++result) window.on_result(Filled::kUntilNow, kLong, Direction::kUp);
  EXPECT_EQ(window.chunks(), 80u) << "its own queue is long";
  for (int result = 0; result < 80; ++result) window.on_result(Filled::kUntilNow, {.is_known = false}, Direction::kUp);
  EXPECT_LE(window.chunks(), 81u) << "an older switch";
  for (int result = 0; result < 80; ++result) window.on_result(Filled::kUntilNow, kShort, Direction::kBoth);
  EXPECT_LE(window.chunks(), 82u);
}

// Results come in batches, and only the first of a batch finds the window full.
TEST(CongestionWindow, OfOneDirectionGrowsFastByEachResultOfABatch) {
  CongestionWindow window(100, 256);
  const auto grown = [&](Queue queue, Direction direction) {
    const std::uint32_t before = window.chunks();
    for (int result = 0; result < 80; ++result) window.on_result(Filled::kBefore, queue, direction);
    return window.chunks() - before;
  };
  EXPECT_EQ(grown(kShort, Direction::kUp), 0u) << "its start ends when its queue is built";
  window.on_loss(5, 100, kLong);
  EXPECT_EQ(grown(kShort, Direction::kUp), 10u);
  EXPECT_EQ(grown(kLong, Direction::kUp), 0u);
  EXPECT_EQ(grown(kShort, Direction::kBoth), 0u);
}

TEST(CongestionWindow, GrowsOnlyWhenItIsTheLimit) {
  CongestionWindow window(4, 256);
  for (int result = 0; result < 1000; ++result) window.on_result(Filled::kNot, kShort);
  EXPECT_EQ(window.chunks(), 4u);
}

TEST(CongestionWindow, ShrinksOnceForALossAtALongQueue) {
  CongestionWindow window(100, 256);
  window.on_loss(5, 100, kLong);
  EXPECT_EQ(window.chunks(), 70u);
  window.on_loss(6, 110, kLong);
  window.on_loss(99, 120, kLong);
  EXPECT_EQ(window.chunks(), 70u) << "sent before it shrank";
  window.on_loss(204, 230, kLong);
  EXPECT_EQ(window.chunks(), 70u) << "another rank, with twice the window, may have sent it before";
  window.on_loss(205, 230, kLong);
  EXPECT_EQ(window.chunks(), 49u);
  EXPECT_EQ(window.shrinks(), 2u);
  for (CongestionWindow::Position next = 400; next < 10'000; next += 100) window.on_loss(next - 50, next, kLong);
  EXPECT_EQ(window.chunks(), 2u) << "never less: one chunk on the way there, one on the way back";
}

TEST(CongestionWindow, ToleratesLossThatIsThereWithoutAQueueToo) {
  CongestionWindow window(100, 100);
  CongestionWindow::Position position = 0;
  constexpr CongestionWindow::Position kNext = 1000;
  for (int loss = 0; loss < 100; ++loss) {  // 4% of all chunks, at a short queue
    window.on_loss(++position, kNext, kShort);
    for (int result = 0; result < 25; ++result) window.on_result(Filled::kUntilNow, kShort);
  }
  EXPECT_EQ(window.shrinks(), 0u);
  for (int loss = 0; loss < 20; ++loss) {
    window.on_loss(++position, kNext, kLong);
    for (int result = 0; result < 25; ++result) window.on_result(Filled::kUntilNow, kLong);
  }
  EXPECT_EQ(window.shrinks(), 0u) << "as many at a long queue";
  for (int loss = 0; loss < 20; ++loss) window.on_loss(++position, kNext, kLong);
  EXPECT_GT(window.shrinks(), 0u) << "many more";
}

TEST(CongestionWindow, GivesWayWhereTheLinkStaysBusy) {
  CongestionWindow window(100, 256);
  window.give_way(1.2, kLong);
  EXPECT_EQ(window.chunks(), 83u);
  window.give_way(5, kLong);
  EXPECT_EQ(window.chunks(), 62u) << "a quarter at once";
  Queue half = kLong;
  half.queueing = 0.49;
  window.give_way(5, half);
  EXPECT_EQ(window.chunks(), 62u) << "without what it gives, the link would have pauses";
  for (int i = 0; i < 20; ++i) window.give_way(2, kLong);
  EXPECT_EQ(window.chunks(), 2u);
  EXPECT_EQ(window.shrinks(), 0u) << "nothing was lost";
}

TEST(CongestionWindow, IsHeldWhateverIsLost) {
  CongestionWindow window(10, 64);
  window.hold_at_least(40);
  EXPECT_EQ(window.chunks(), 40u);
  window.on_loss(5, 40, kLong);
  EXPECT_EQ(window.chunks(), 40u);
  EXPECT_EQ(window.shrinks(), 1u);
  window.hold_at_least(1000);
  EXPECT_EQ(window.chunks(), 64u) << "a switch may say anything";
  window.hold_at_least(0);
  EXPECT_EQ(window.chunks(), 64u);
  window.on_loss(500, 600, kLong);
  EXPECT_EQ(window.chunks(), 44u) << "it is like any other from then on";
}

TEST(GrantedRate, LastsASecondAndFollowsTheRoundTrip) {
  GrantedRate granted;
  EXPECT_EQ(granted.chunks(kMillisecond, kSecond), 0u);
  granted.on_grant(2000, kSecond);
  EXPECT_EQ(granted.chunks(10 * kMillisecond, kSecond), 20u);
  EXPECT_EQ(granted.chunks(50 * kMillisecond, 2 * kSecond - 1), 100u);
  EXPECT_EQ(granted.chunks(50 * kMillisecond, 2 * kSecond), 0u);
}

// Grants that come four times a second, while one chunk of so many is lost. The time without a grant, of so long.
double refused(int lost_one_of, int seconds) {
  GrantedRate granted;
  int looks_without = 0;
  Nanoseconds now = kSecond;
  for (int look = 0; look < 4 * seconds; ++look, now += kSecond / 4) {
    granted.on_grant(1000, now);
    if (granted.chunks(kSecond, now) == 0) ++looks_without;
    for (int sent = 1; sent <= 250; ++sent) {
      granted.on_sent();
      if (sent % lost_one_of == 0) granted.on_missing(now);
    }
  }
  return looks_without / (4.0 * seconds);
}

TEST(GrantedRate, IsRefusedWhereItsChunksAreLost) {
  EXPECT_EQ(refused(10, 100), 0);
  EXPECT_GT(refused(5, 1000), 0.98);
}

TEST(GrantedRate, IsRefusedForAShortTimeAfterOneBurst) {
  GrantedRate granted;
  granted.on_grant(1000, kSecond);
  for (int lost = 0; lost < 100; ++lost) granted.on_missing(kSecond);
  granted.on_grant(1000, 2 * kSecond);
  EXPECT_EQ(granted.chunks(kSecond, 2 * kSecond), 0u);
  granted.on_grant(1000, 3 * kSecond);
  EXPECT_EQ(granted.chunks(kSecond, 3 * kSecond), 1000u);
}

TEST(CongestionWindow, CatchesUpWhereItIsTheLimit) {
  CongestionWindow window(40, 256);
  window.on_loss(5, 40, kLong);
  ASSERT_EQ(window.chunks(), 28u);
  window.catch_up();
  for (int result = 0; result < 10; ++result) window.on_result(Filled::kNot, kLong);
  EXPECT_EQ(window.chunks(), 28u) << "its computation is late";
  for (int result = 0; result < 10; ++result) window.on_result(Filled::kUntilNow, kLong);
  EXPECT_EQ(window.chunks(), 29u) << "a sixteenth, one at least";
  window.catch_up();
  window.catch_up();
  for (int result = 0; result < 10; ++result) window.on_result(Filled::kBefore, kLong);
  EXPECT_EQ(window.chunks(), 30u) << "only the last word counts";
  window.catch_up();
  window.on_loss(500, 540, kLong);
  EXPECT_EQ(window.chunks(), 21u);
  for (int result = 0; result < 10; ++result) window.on_result(Filled::kUntilNow, kLong);
  EXPECT_EQ(window.chunks(), 21u) << "a loss says more";
}

TEST(CongestionWindow, ShrinksToWhatArrivedOfABurst) {
  CongestionWindow window(100, 256);
  for (CongestionWindow::Position position = 20; position < 100; ++position) window.on_missing(position, 100);
  EXPECT_EQ(window.chunks(), 14u) << "80 of 100 were missing";
}

}  // namespace
}  // namespace netfold::group

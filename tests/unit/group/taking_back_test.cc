// Ranks take parts back from a switch: they find how fast it is now, how much is worth it, and which parts these are.
#include "group/via_both/taking_back.h"

#include <gtest/gtest.h>

#include "group/via_both/kept_parts.h"

namespace netfold::group {
namespace {

constexpr SwitchLife kFirstLife{1, 0}, kOtherLife{1, 1};

TEST(TakingBack, BeginsBehindTheRankThatHandedOverMost) {
  TakingBack taking(3);
  EXPECT_FALSE(taking.waits_for());
  taking.ask(kFirstLife);
  taking.hear(0, kFirstLife, 5);
  EXPECT_EQ(taking.waits_for(), 1);
  taking.hear(1, kOtherLife, 9);  // of another life: it means nothing
  EXPECT_EQ(taking.waits_for(), 1);
  taking.hear(1, kFirstLife, 7);
  taking.hear(2, kFirstLife, 6);
  EXPECT_FALSE(taking.waits_for());
  EXPECT_EQ(taking.first(), 7U);
  taking.ask(kOtherLife);
  EXPECT_EQ(taking.waits_for(), 0);
}

TEST(SwitchRate, IsThatOfTheLastMoment) {
  SwitchRate rate;
  Nanoseconds now = kSecond;
  std::uint64_t chunks = 100, received = 0;
  const auto run = [&](Nanoseconds time, std::uint64_t each_ms) {
    for (const Nanoseconds until = now + time; now < until; now += kMillisecond) {
      rate.look(now, chunks += each_ms, received += 1000, true);
    }
  };
  rate.look(0, chunks, received, false);
  run(10 * kMillisecond, 8);
  EXPECT_FALSE(rate.chunks_s(1e6)) << "too soon to tell";
  run(200 * kMillisecond, 8);
  EXPECT_NEAR(*rate.chunks_s(1e6), 8000, 300);
  run(130 * kMillisecond, 2);
  EXPECT_NEAR(*rate.chunks_s(1e6), 2000, 300);
}

// Ranks that wait for a late one say nothing of the switch.
TEST(SwitchRate, DoesNotCountWhileNothingMoves) {
  SwitchRate rate;
  Nanoseconds now = 0;
  std::uint64_t chunks = 0, received = 0;
  const auto run = [&](Nanoseconds time, std::uint64_t each_ms) {
    for (const Nanoseconds until = now + time; now < until; now += kMillisecond) {
      rate.look(now, chunks += each_ms, received += 1000, true);
    }
  };
  run(100 * kMillisecond, 8);
  run(500 * kMillisecond, 0);
  EXPECT_FALSE(rate.is_moving(now));
  run(130 * kMillisecond, 8);
  EXPECT_TRUE(rate.is_moving(now));
  EXPECT_NEAR(*rate.chunks_s(1e6), 8000, 300);
}

// A rank that stands still now and then catches up.
TEST(SwitchRate, IsThatOfTheFastestMoment) {
  SwitchRate rate;
  std::uint64_t chunks = 0, received = 0;
  for (Nanoseconds now = 0; now < 250 * kMillisecond; now += kMillisecond) {
    rate.look(now, chunks += now / kMillisecond % 80 < 60 ? 1 : 8, received += 1000, true);
  }
  EXPECT_GT(*rate.chunks_s(1e6), 7000);
}

// They receive as much less from each other.
TEST(SwitchRate, IsAsItWouldBeIfNoRankWereSlow) {
  SwitchRate rate;
  std::uint64_t chunks = 0, received = 0;
  for (Nanoseconds now = 0; now < 200 * kMillisecond; now += kMillisecond) {
    rate.look(now, chunks += 2, received += 250, true);
  }
  EXPECT_NEAR(*rate.chunks_s(1e6), 8000, 300);
}

TEST(BytesToTakeBack, LetBothWaysEndTogether) {
  const Load load{
      .in_switch = 2e6, .switch_bytes_s = 3e6, .among_ranks = 1e6, .ranks_bytes_s = 20e6, .received_each = 1.75};
  const double taken = bytes_to_take_back(load);
  EXPECT_NEAR((load.in_switch - taken) / load.switch_bytes_s, (load.among_ranks + 1.75 * taken) / load.ranks_bytes_s,
              1e-6);
  EXPECT_GT(taken, 1e6);
}

TEST(BytesToTakeBack, AreNoneWhereTheWaysEndNearlyTogether) {
  EXPECT_EQ(bytes_to_take_back({.in_switch = 1e6,
                                .switch_bytes_s = 10e6,
                                .among_ranks = 1.4e6,
                                .ranks_bytes_s = 20e6,
                                .received_each = 1.75}),
            0);
}

class PartsOfASwitch : public ::testing::Test {
 protected:
  static constexpr std::size_t kEach = 128;

  void add(Ticket piece, Ticket ticket) {
    CollectiveRequest request;
    request.in = memory_.data() + count_ * kEach;
    request.count = kEach;
    ++count_;
    parts_.add({request, nullptr, piece, ticket});
  }
  std::vector<float> memory_ = std::vector<float>(16 * kEach);
  std::size_t count_ = 0;
  KeptParts parts_;
};

TEST_F(PartsOfASwitch, OfOnePieceAreTakenBackTogether) {
  for (Ticket part = 0; part < 6; ++part) add(part < 4 ? 1 : 2, 10 + part);
  ASSERT_EQ(parts_.waiting()->ticket, 10U);
  parts_.hand_over(3);
  EXPECT_EQ(parts_.first_waiting(), 1U);
  const auto taken = parts_.take_back(2, 5);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].number, 2U);
  EXPECT_EQ(taken[0].parts, 2);
  EXPECT_EQ(taken[0].part.request.count, 2 * kEach);
  EXPECT_EQ(taken[0].part.request.in, memory_.data() + 2 * kEach);
  EXPECT_EQ(taken[1].number, 4U);
  EXPECT_EQ(taken[1].part.piece, 2U);
  EXPECT_TRUE(parts_.take_back(2, 5).empty()) << "they are taken once";
  EXPECT_EQ(parts_.waiting()->ticket, 11U);
  parts_.hand_over(6);
  EXPECT_EQ(parts_.waiting()->ticket, 15U) << "those that were taken are not handed over";
}

// Others may lack what this rank has, as long as they may be so far behind.
TEST_F(PartsOfASwitch, AreKeptUntilNoRankNeedsThem) {
  for (Ticket part = 0; part < 4; ++part) add(1, 10 + part);
  for (std::uint64_t part = 0; part < 2; ++part) {
    ASSERT_NE(parts_.waiting(), nullptr);
    parts_.hand_over(3 * (part + 1));
  }
  EXPECT_EQ(parts_.end(10, 3, 3), 1U);
  EXPECT_EQ(parts_.end(11, 6, 3), 1U);
  EXPECT_EQ(parts_.first_not_over(), 2U);
  EXPECT_EQ(std::ranges::distance(parts_.from(1)), 3) << "the first one is forgotten, no more";
  EXPECT_EQ(parts_.take_back(2, 99).size(), 1U);
  EXPECT_EQ(parts_.waiting(), nullptr);
  EXPECT_EQ(parts_.first_not_over(), 4U);
}

}  // namespace
}  // namespace netfold::group

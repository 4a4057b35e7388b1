// Ranks that lose switches at random moments, and hear of it late: all must begin the same things in the same order.
#include "group/via_both/losses.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/prng.h"

namespace netfold::group {
namespace {

constexpr std::size_t kSwitchesToLose = 3;
constexpr std::uint64_t kEvents = 40;
constexpr int kOrdinary = -1;  // else the number of a switch

struct Message {
  int from;
  std::size_t at;
  Losses::Word word;
};

struct RankThatLoses {
  Losses losses;
  std::vector<int> begun = {};                  // kOrdinary, or the switch whose parts were begun again
  std::vector<std::deque<Message>> heard = {};  // by sender, in its order
};

class LosingCluster {
 public:
  LosingCluster(int world, std::uint64_t seed) : prng_(seed) {
    for (int rank = 0; rank < world; ++rank) {
      ranks_.push_back({Losses(rank, world)});
      ranks_.back().heard.resize(static_cast<std::size_t>(world));
    }
  }

  void run() {
    for (int step = 0; step < 200'000 && !is_over(); ++step) {
      const std::size_t rank = prng_.below(ranks_.size());
      switch (prng_.below(3)) {
        case 0: begin_next(rank); break;
        case 1: read_one(rank, prng_.below(ranks_.size())); break;
        default:
          if (prng_.below(60) == 0) lose(rank, prng_.below(kSwitchesToLose));
      }
    }
  }
  void check() const {
    for (const RankThatLoses& rank : ranks_) {
      ASSERT_EQ(rank.begun, ranks_[0].begun);
      EXPECT_FALSE(rank.losses.is_open());
    }
  }

 private:
  bool is_over() const {
    for (const RankThatLoses& rank : ranks_) {
      if (rank.begun.size() < kEvents || rank.losses.is_open()) return false;
      for (const auto& queue : rank.heard) {
        if (!queue.empty()) return false;
      }
    }
    return true;
  }
  void begin_next(std::size_t number) {
    RankThatLoses& rank = ranks_[number];
    if (rank.losses.awaits_words()) return;
    if (const auto at = rank.losses.due(rank.begun.size())) {
      rank.begun.push_back(static_cast<int>(*at));
      return rank.losses.begun_again(*at);
    }
    // At the end only those that are behind go on.
    if (rank.begun.size() < kEvents || rank.losses.is_open()) rank.begun.push_back(kOrdinary);
  }
  void lose(std::size_t number, std::size_t at) {
    RankThatLoses& rank = ranks_[number];
    if (rank.losses.is_lost(at)) return;
    const Losses::Word word{rank.begun.size(), 0};
    rank.losses.lose(at, word);
    for (std::size_t other = 0; other < ranks_.size(); ++other) {
      if (other != number) ranks_[other].heard[number].push_back({static_cast<int>(number), at, word});
    }
  }
  void read_one(std::size_t number, std::size_t from) {
    auto& queue = ranks_[number].heard[from];
    if (queue.empty()) return;
    const Message message = queue.front();
    queue.pop_front();
    lose(number, message.at);
    ranks_[number].losses.hear(message.from, message.at, message.word);
  }

  Prng prng_;
  std::vector<RankThatLoses> ranks_;
};

TEST(Losses, AllRanksBeginTheSameInTheSameOrder) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    LosingCluster cluster(2 + static_cast<int>(seed % 4), seed);
    cluster.run();
    cluster.check();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Losses, BeginAgainFromThePartThatAnyRankLacks) {
  Losses losses(0, 3);
  EXPECT_FALSE(losses.is_open());
  losses.lose(0, {.begun = 5, .first = 3});
  EXPECT_EQ(losses.waits_for(), 1);
  losses.hear(1, 0, {.begun = 6, .first = 4});
  EXPECT_EQ(losses.waits_for(), 2);
  losses.hear(2, 0, {.begun = 4, .first = 2});
  EXPECT_FALSE(losses.awaits_words());
  EXPECT_FALSE(losses.due(5));
  EXPECT_EQ(losses.due(6), 0U);
  EXPECT_EQ(losses.first(0), 2U);
  losses.begun_again(0);
  EXPECT_FALSE(losses.is_open());
}

TEST(Losses, ARankThatHasLeftNeedsNothing) {
  Losses losses(0, 3);
  losses.lose(0, {.begun = 5, .first = 3});
  losses.leave(1);
  EXPECT_EQ(losses.waits_for(), 2);
  losses.hear(2, 0, {.begun = 6, .first = 2});
  EXPECT_FALSE(losses.awaits_words());
  EXPECT_FALSE(losses.due(5));
  EXPECT_EQ(losses.due(6), 0U);
  EXPECT_EQ(losses.first(0), 2U);
}

}  // namespace
}  // namespace netfold::group

// Ranks that lose switches at random moments, and hear of it late. Every rank begins a part only when the one before is
// over. In the end all parts are over, and all ranks have done each one in the same way.
#include "group/via_both/losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <vector>

#include "base/prng.h"

namespace netfold::group {
namespace {

constexpr std::size_t kSwitchesToLose = 3;
constexpr std::size_t kParts = 40;  // in all, each at one of the switches

struct Message {
  int from;
  std::size_t at;
  Losses::Word word;
};

struct Part {
  std::size_t at;
  std::uint64_t number;  // there
  // The ranks that have handed it over to the switch, do it again, or have it in its turn among the ranks.
  std::set<std::size_t> in_switch = {}, again = {}, in_turn = {};
};

struct RankThatLoses {
  Losses losses;
  std::size_t begun = 0;
  std::set<std::size_t> over = {};
  std::array<std::uint64_t, kSwitchesToLose> begun_there = {};
  std::vector<std::deque<Message>> heard = {};  // by sender, in its order
};

class LosingCluster {
 public:
  LosingCluster(int world, std::uint64_t seed) : prng_(seed) {
    std::array<std::uint64_t, kSwitchesToLose> numbers = {};
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::size_t at = prng_.below(kSwitchesToLose);
      parts_.push_back({at, numbers[at]++});
    }
    for (int rank = 0; rank < world; ++rank) {
      ranks_.push_back({Losses(rank, world)});
      ranks_.back().heard.resize(static_cast<std::size_t>(world));
    }
  }

  void run() {
    for (int step = 0; step < 200'000 && !is_over(); ++step) {
      const std::size_t rank = prng_.below(ranks_.size());
      switch (prng_.below(4)) {
        case 0: begin_next(rank); break;
        case 1: read_one(rank, prng_.below(ranks_.size())); break;
        case 2: end_one(rank); break;
        default:
          if (prng_.below(60) == 0) lose(rank, prng_.below(kSwitchesToLose));
      }
    }
  }
  void check() const {
    EXPECT_TRUE(is_over());
    for (const Part& part : parts_) {
      EXPECT_TRUE(part.again.empty() || part.again.size() == ranks_.size()) << "not all do it again";
      EXPECT_TRUE(part.in_turn.empty() || part.in_turn.size() == ranks_.size()) << "not all have it in its turn";
    }
  }

 private:
  bool is_over() const {
    return std::ranges::all_of(ranks_, [](const RankThatLoses& rank) {
      return rank.over.size() == kParts && !rank.losses.awaits_words() && !rank.losses.due() &&
             std::ranges::all_of(rank.heard, [](const auto& queue) { return queue.empty(); });
    });
  }
  // The part before it is over: the caller waits for each.
  void begin_next(std::size_t number) {
    RankThatLoses& rank = ranks_[number];
    if (rank.losses.awaits_words()) return;
    if (const auto at = rank.losses.due()) {
      for (Part& part : parts_) {
        const bool has_begun = part.number < rank.begun_there[part.at];
        if (part.at == *at && has_begun && part.number >= rank.losses.first(*at)) part.again.insert(number);
      }
      return rank.losses.begun_again(*at);
    }
    if (rank.begun == kParts || rank.over.size() < rank.begun) return;
    Part& part = parts_[rank.begun++];
    ++rank.begun_there[part.at];
    if (!rank.losses.is_lost(part.at)) {
      part.in_switch.insert(number);
    } else if (part.number < rank.losses.end(part.at)) {
      part.again.insert(number);
    } else {
      part.in_turn.insert(number);
    }
  }
  // One of those that were begun, where all ranks have contributed. No rank hears a lost switch.
  void end_one(std::size_t number) {
    RankThatLoses& rank = ranks_[number];
    for (std::size_t at = 0; at < rank.begun; ++at) {
      const Part& part = parts_[at];
      const bool by_switch = part.in_switch.size() == ranks_.size() && !rank.losses.is_lost(part.at);
      const bool among_ranks = part.again.size() == ranks_.size() || part.in_turn.size() == ranks_.size();
      if (by_switch || among_ranks) rank.over.insert(at);
    }
  }
  void lose(std::size_t number, std::size_t at) {
    RankThatLoses& rank = ranks_[number];
    if (rank.losses.is_lost(at)) return;
    Losses::Word word{.begun = rank.begun_there[at]};
    for (std::size_t part = 0; part < kParts; ++part) {
      if (parts_[part].at == at && rank.over.contains(part)) ++word.first;
    }
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
  std::vector<Part> parts_;
  std::vector<RankThatLoses> ranks_;
};

TEST(Losses, EachPartIsOverInTheEnd) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    LosingCluster cluster(2 + static_cast<int>(seed % 4), seed);
    cluster.run();
    cluster.check();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Losses, FromThePartThatAnyRankLacksToTheLastThatAnyHasBegun) {
  Losses losses(0, 3);
  EXPECT_FALSE(losses.due());
  losses.lose(0, {.first = 3, .begun = 5});
  EXPECT_EQ(losses.waits_for(), 1);
  losses.hear(1, 0, {.first = 4, .begun = 6});
  EXPECT_EQ(losses.waits_for(), 2);
  EXPECT_FALSE(losses.due());
  losses.hear(2, 0, {.first = 2, .begun = 4});
  EXPECT_FALSE(losses.awaits_words());
  EXPECT_EQ(losses.due(), 0U);
  EXPECT_EQ(losses.first(0), 2U);
  EXPECT_EQ(losses.end(0), 6U);
  losses.begun_again(0);
  EXPECT_FALSE(losses.due());
}

TEST(Losses, ARankThatHasLeftNeedsNothing) {
  Losses losses(0, 3);
  losses.lose(0, {.first = 3, .begun = 5});
  losses.leave(1);
  EXPECT_EQ(losses.waits_for(), 2);
  losses.hear(2, 0, {.first = 2, .begun = 6});
  EXPECT_FALSE(losses.awaits_words());
  EXPECT_EQ(losses.due(), 0U);
  EXPECT_EQ(losses.first(0), 2U);
  EXPECT_EQ(losses.end(0), 6U);
}

}  // namespace
}  // namespace netfold::group

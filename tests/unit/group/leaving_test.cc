// Ranks that get their parts in random order and leave when all others have theirs: each leaves, and none before the
// others have what it has.
#include "group/via_both/leaving.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "base/prng.h"
#include "support/random_seed.h"

namespace netfold::group {
namespace {

constexpr std::size_t kSwitches = 2;
constexpr std::uint64_t kPartsMax = 6;
constexpr std::uint64_t kSeeds = 200;

struct Said {
  int from;
  std::size_t at;
  std::uint64_t parts;
};

struct RankThatLeaves {
  Leaving leaving;
  std::vector<std::uint64_t> over = std::vector<std::uint64_t>(kSwitches);
  std::deque<Said> heard = {};
  bool has_asked = false, has_left = false;
};

class LeavingRanks {
 public:
  explicit LeavingRanks(std::uint64_t seed) : prng_(seed) {
    for (std::size_t at = 0; at < kSwitches; ++at) parts_.push_back(prng_.below(kPartsMax));
    const int world = static_cast<int>(2 + prng_.below(6));
    for (int rank = 0; rank < world; ++rank) ranks_.push_back({Leaving(rank, world)});
  }

  void run() {
    for (int step = 0; step < 10'000 && !std::ranges::all_of(ranks_, &RankThatLeaves::has_left); ++step) {
      const std::size_t rank = prng_.below(ranks_.size());
      if (ranks_[rank].has_left) continue;
      move(ranks_[rank]);
      say(static_cast<int>(rank));
      leave(ranks_[rank]);
    }
    EXPECT_TRUE(std::ranges::all_of(ranks_, &RankThatLeaves::has_left));
  }

 private:
  void move(RankThatLeaves& rank) {
    const std::size_t at = prng_.below(kSwitches);
    if (rank.over[at] < parts_[at] && prng_.chance(0.5)) ++rank.over[at];
    if (rank.heard.empty() || prng_.chance(0.5)) return;
    const Said said = rank.heard.front();
    rank.heard.pop_front();
    rank.leaving.hear(said.from, said.at, said.parts);
  }
  void say(int from) {
    RankThatLeaves& rank = ranks_[static_cast<std::size_t>(from)];
    if (rank.over == parts_ && !rank.has_asked) {
      rank.has_asked = true;
      for (std::size_t at = 0; at < kSwitches; ++at) rank.leaving.ask(at, parts_[at]);
    }
    for (std::size_t at = 0; at < kSwitches; ++at) {
      const auto parts = rank.leaving.answer(at, rank.over[at]);
      if (!parts) continue;
      EXPECT_LE(*parts, rank.over[at]);
      for (RankThatLeaves& other : ranks_) {
        if (&other != &rank) other.heard.push_back({from, at, *parts});
      }
    }
  }
  void leave(RankThatLeaves& rank) {
    const auto has_left = [&](int other) { return ranks_[static_cast<std::size_t>(other)].has_left; };
    if (!rank.has_asked || !rank.leaving.have_all(has_left)) return;
    rank.has_left = true;
    for (const RankThatLeaves& other : ranks_) EXPECT_EQ(other.over, parts_);
  }

  Prng prng_;
  std::vector<std::uint64_t> parts_;  // by switch
  std::vector<RankThatLeaves> ranks_;
};

TEST(Leaving, RanksStayUntilAllHaveTheirParts) {
  for (const std::uint64_t seed : tests::random_seeds(kSeeds)) {
    SCOPED_TRACE(fmt::format("NETFOLD_SEED={}", seed));
    LeavingRanks(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Leaving, ALostSwitchKeepsNobody) {
  Leaving leaving(0, 3);
  const auto nobody = [](int) { return false; };
  leaving.ask(4, 2);
  EXPECT_FALSE(leaving.have_all(nobody));
  EXPECT_TRUE(leaving.have_all([](int) { return true; }));
  leaving.forget(4);
  EXPECT_TRUE(leaving.have_all(nobody));
  EXPECT_FALSE(leaving.answer(4, 2));
}

}  // namespace
}  // namespace netfold::group

// Ranks that share cores unevenly part evenly, each by itself.
#include "group/rank_spread.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "base/thread.h"

namespace netfold::group {
namespace {

using Cores = std::vector<int>;

// Every rank looks at the same, and goes where it wants to.
Cores after(const Cores& cores, const Cores& allowed) {
  Cores moved = cores;
  for (std::size_t rank = 0; rank < cores.size(); ++rank) {
    const int to = core_to_leave_for(cores, static_cast<int>(rank), allowed);
    if (to != kUnknownCore) moved[rank] = to;
  }
  return moved;
}

TEST(Spread, TheLowerRanksStay) {
  EXPECT_EQ(after({1, 1}, {0, 1}), (Cores{1, 0}));
  EXPECT_EQ(after({0, 0, 0, 0}, {0, 1}), (Cores{0, 0, 1, 1}));
  EXPECT_EQ(after({5, 5, 5}, {2, 5, 7}), (Cores{5, 2, 7}));
}

TEST(Spread, NobodyLeavesWhereAllHaveAPlace) {
  for (const Cores& cores : {Cores{0, 1}, Cores{1, 0, 1}, Cores{0, 0, 1, 1}, Cores{0}}) {
    EXPECT_EQ(after(cores, {0, 1}), cores);
  }
}

TEST(Spread, WhoMayRunNowhereElseStays) {
  EXPECT_EQ(core_to_leave_for(Cores{0, 0, 0}, 2, Cores{0}), kUnknownCore);
  EXPECT_EQ(core_to_leave_for(Cores{0, 0, 0}, 2, Cores{}), kUnknownCore);
}

TEST(Spread, WhoHasNotSaidWhereItIsCountsNowhere) {
  EXPECT_EQ(core_to_leave_for(Cores{kUnknownCore, 0}, 0, Cores{0, 1}), kUnknownCore);
  EXPECT_EQ(core_to_leave_for(Cores{kUnknownCore, 0}, 1, Cores{0, 1}), kUnknownCore);
}

TEST(Spread, FromAnywhereOneMoveEachIsEnough) {
  Prng random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t world = 1 + random.below(17), many = 1 + random.below(9);
    Cores allowed, cores;
    for (std::size_t core = 0; core < many; ++core) allowed.push_back(static_cast<int>(3 * core));
    for (std::size_t rank = 0; rank < world; ++rank) cores.push_back(allowed[random.below(many)]);
    const Cores moved = after(cores, allowed);
    for (const int core : allowed) {
      EXPECT_LE(std::count(moved.begin(), moved.end(), core), (world + many - 1) / many) << "trial " << trial;
    }
    EXPECT_EQ(after(moved, allowed), moved) << "trial " << trial;
  }
}

TEST(Spread, AThreadThatMovesMayStillRunAnywhere) {
  std::thread([] {
    const Cores before = allowed_cores();
    ASSERT_FALSE(before.empty());
    for (const int core : before) {
      move_to_core(core);
      EXPECT_EQ(allowed_cores(), before);
    }
    move_to_core(CPU_SETSIZE - 1);  // no such core: nothing happens
    EXPECT_EQ(allowed_cores(), before);
  }).join();
}

}  // namespace
}  // namespace netfold::group

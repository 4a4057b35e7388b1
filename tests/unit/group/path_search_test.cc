// The search for a path's MTU over simulated paths in virtual time, which drop what is too large and some more.
#include "membership/path_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/prng.h"
#include "group/via_switch/path_watch.h"

namespace netfold::membership {
namespace {

struct Path {
  std::uint32_t mtu = 1500;  // the smaller one of both directions
  double loss = 0;           // of a probe and its answer
  Nanoseconds round_trip = 200 * kMicrosecond;
};

struct Outcome {
  std::uint32_t found = 0;
  Nanoseconds took = 0;
  int probes = 0;
};

Outcome search(const Path& path, std::uint32_t most, Prng& prng) {
  struct Answer {
    std::uint32_t number;
    Nanoseconds due;
  };
  constexpr Nanoseconds kStart = 7 * kSecond;
  std::vector<Answer> answers;
  Nanoseconds now = kStart;
  PathSearch search(most, now);
  for (Outcome outcome;;) {
    std::erase_if(answers, [&](const Answer& each) {
      if (each.due > now) return false;
      search.on_answer(each.number, now);
      return true;
    });
    if (const auto found = search.found(now)) {
      outcome.found = *found;
      outcome.took = now - kStart;
      return outcome;
    }
    while (const auto probe = search.next(now)) {
      ++outcome.probes;
      EXPECT_LE(probe->size_bytes, most);
      if (probe->size_bytes <= path.mtu && !prng.chance(path.loss)) {
        answers.push_back({probe->number, now + path.round_trip});
      }
    }
    Nanoseconds next = search.deadline();
    for (const Answer& answer : answers) next = std::min(next, answer.due);
    EXPECT_GT(next, now) << "it would spin";
    if (next <= now || now - kStart > 5 * kSecond) return outcome;
    now = next;
  }
}

TEST(PathSearch, AWholePathTakesOneRoundTrip) {
  Prng prng(1);
  for (const std::uint32_t most : {256u, 1500u, 4000u, 8272u}) {
    const Outcome outcome = search({.mtu = 9000}, most, prng);
    EXPECT_EQ(outcome.found, most);
    EXPECT_EQ(outcome.took, 200 * kMicrosecond);
    EXPECT_LE(outcome.probes, 7);
  }
}

TEST(PathSearch, ABlackHoleGivesTheSmallerSizeWithinASecond) {
  const char* const given = std::getenv("NETFOLD_SEED");
  const std::uint64_t seed = given != nullptr ? std::stoull(given) : 20261125;
  SCOPED_TRACE("NETFOLD_SEED=" + std::to_string(seed));
  Prng prng(seed);
  for (int round = 0; round < 3000; ++round) {
    const Path path{.mtu = static_cast<std::uint32_t>(256 + prng.below(8017)),
                    .loss = prng.chance(0.5) ? 0 : 0.05,
                    .round_trip = static_cast<Nanoseconds>(20 + prng.below(5000)) * kMicrosecond};
    const Outcome outcome = search(path, 8272, prng);
    ASSERT_LE(outcome.found, path.mtu);
    ASSERT_LE(outcome.took, 800 * kMillisecond);
    if (path.loss == 0) {
      ASSERT_GE(outcome.found + 8, path.mtu) << path.round_trip;
    }
    if (path.loss > 0) {
      ASSERT_GE(outcome.found + 1600, path.mtu) << "six tries of a size are not all lost";
    }
  }
}

TEST(PathSearch, OfASilentPathNothingIsKnown) {
  Prng prng(1);
  const Outcome outcome = search({.loss = 1}, 8272, prng);
  EXPECT_EQ(outcome.found, 0u);
  EXPECT_LE(outcome.took, 400 * kMillisecond);
  EXPECT_LE(outcome.probes, 42);
}

// Half a second of stall with its pairs; `passes`: of a large probe and of a small one.
bool watch(bool large_passes, bool small_passes, Nanoseconds longest, Nanoseconds& took) {
  group::PathWatch watch;
  const Nanoseconds stalled = kSecond;
  for (Nanoseconds now = stalled; now < stalled + longest; now = watch.begin_at(stalled)) {
    if (watch.begin_pair(now, stalled)) {
      if (large_passes) watch.on_answer(watch.large(), now + kMillisecond);
      if (small_passes) watch.on_answer(watch.small(), now + kMillisecond);
    }
    took = now - stalled;
    if (watch.has_shrunk()) return true;
  }
  return false;
}

TEST(PathWatch, OnlyAPathThatCarriesSmallPacketsAndNoLargeOnesHasShrunk) {
  Nanoseconds took = 0;
  EXPECT_TRUE(watch(false, true, 10 * kSecond, took));
  EXPECT_LE(took, kSecond);
  EXPECT_FALSE(watch(true, true, 10 * kSecond, took)) << "a rank computes";
  EXPECT_FALSE(watch(false, false, 10 * kSecond, took)) << "the switch is dead, or answers no probes";
}

}  // namespace
}  // namespace netfold::membership

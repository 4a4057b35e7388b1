// A machine is cut off, in one direction or in both, in virtual time: its connections stay, and its kernel confirms
// nothing. Every other rank must name it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "group/via_peers/peer_session.h"
#include "support/random_seed.h"
#include "testing/connected_ranks.h"

namespace netfold::group {
namespace {

constexpr Nanoseconds kCutOffStep = 200 * kMicrosecond;
constexpr Nanoseconds kCutOffTimeout = 2 * kSecond;
constexpr Nanoseconds kLongTimeout = 1800 * kSecond;
constexpr const char* kCutOffAlgorithms[] = {"ring", "halving-doubling", "direct"};

struct RankThatMayBeCutOff {
  std::unique_ptr<PeerSession> session;
  std::vector<float> tensor;
  CollectiveRequest request = {};
  std::optional<Error> error;
};

class RanksThatMayBeCutOff {
 public:
  // Elastic ranks have half an hour as their timeout. `on_each`: ranks of one machine.
  RanksThatMayBeCutOff(std::uint64_t seed, int world, bool elastic = false, int on_each = 1,
                       Nanoseconds delay_max = 40 * kMicrosecond)
      : prng_(seed), network_(timeline_, seed + 1), ranks_(at(world)), on_each_(on_each) {
    network_.set_weather({.delay_max = delay_max});
    const testing::StreamShape shape{.buffer_bytes = 8192, .window_bytes = 8192, .bytes_per_s = 1e6};
    std::vector<testing::RankPlace> places;
    for (int rank = 0; rank < world; ++rank) places.push_back({ip_of(rank)});
    auto all = testing::connect_ranks(network_, places, shape, false);
    const char* const algorithm = kCutOffAlgorithms[prng_.below(std::size(kCutOffAlgorithms))];
    for (int rank = 0; rank < world; ++rank) {
      RankThatMayBeCutOff& own = ranks_[at(rank)];
      own.session = std::make_unique<PeerSession>(
          PeerSessionOptions{rank, world, elastic ? kLongTimeout : kCutOffTimeout, elastic}, std::move(all[at(rank)]),
          Plans(world, rank), 0);
      own.tensor.assign(20'000, 1.0F);
      own.request = {.in = own.tensor.data(),
                     .out = own.tensor.data(),
                     .count = own.tensor.size(),
                     .format = numbers::Format::kFp32,
                     .algorithm = {.name = algorithm}};
      submit(own);
    }
  }

  Prng& prng() { return prng_; }
  const RankThatMayBeCutOff& rank(int number) const { return ranks_[at(number)]; }

  // Nothing reaches the machine of this rank any more, or nothing comes from it.
  void cut(int victim, bool to_it, bool from_it, bool is_cut = true) {
    for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
      if (is_with(other, victim)) continue;
      if (to_it) network_.block(ip_of(other), ip_of(victim), is_cut);
      if (from_it) network_.block(ip_of(victim), ip_of(other), is_cut);
    }
  }
  bool is_with(int one, int other) const { return ip_of(one) == ip_of(other); }  // on one machine

  void run_for(Nanoseconds time) {
    for (const Nanoseconds end = timeline_.now() + time; timeline_.now() < end;) {
      for (const Nanoseconds until = timeline_.now() + kCutOffStep; timeline_.step(until);) {
      }
      for (RankThatMayBeCutOff& each : ranks_) {
        if (each.error) continue;
        if (!each.session->take_finished().empty()) submit(each);
        if (const auto moved = each.session->pump(timeline_.now()); !moved) {
          each.error = moved.error();
          each.session->abort(moved.error(), timeline_.now());
        }
      }
    }
  }

 private:
  // One all-reduce after another, without end.
  static void submit(RankThatMayBeCutOff& rank) {
    auto prepared = rank.session->prepare(rank.request);
    ASSERT_TRUE(prepared) << prepared.error().message;
    rank.session->submit(1, rank.request, std::move(*prepared));
  }

  static std::size_t at(int number) { return static_cast<std::size_t>(number); }
  IpAddress ip_of(int number) const { return static_cast<std::uint32_t>(0x0a000001 + number / on_each_); }

  Prng prng_;
  testing::Timeline timeline_;
  testing::Network network_;
  std::vector<RankThatMayBeCutOff> ranks_;
  const int on_each_;
};

// Steps that do not need that machine go on for a moment.
constexpr Nanoseconds kKnowAfter = 300 * kMillisecond + kCutOffTimeout + PeerSession::kCourtesy;

TEST(CutOff, TheOthersNameTheMachineThatIs) {
  for (const std::uint64_t seed : tests::random_seeds(12)) {
    SCOPED_TRACE(seed);
    const int world = 3 + static_cast<int>(seed % 4),
              victim = static_cast<int>(seed / 4 % static_cast<std::uint64_t>(world));
    const std::uint64_t way = seed / 64 % 3;
    SCOPED_TRACE(fmt::format("{} ranks, {} does not {}", world, victim,
                             way == 0   ? "hear"
                             : way == 1 ? "speak"
                                        : "do either"));
    RanksThatMayBeCutOff ranks(seed, world);
    ranks.run_for(static_cast<Nanoseconds>(ranks.prng().below(150 * kMillisecond)));
    ranks.cut(victim, way != 1, way != 0);
    ranks.run_for(kKnowAfter);
    for (int rank = 0; rank < world; ++rank) {
      const auto& error = ranks.rank(rank).error;
      ASSERT_TRUE(error) << "rank " << rank << " still waits";
      if (rank == victim) continue;
      EXPECT_EQ(error->rank, victim) << "rank " << rank << ": " << error->message;
    }
  }
}

// Elastic ranks: long before the timeout is over. The machine has one rank or several.
constexpr Nanoseconds kSilence = 31 * 200 * kMillisecond;  // five packets sent again, each after twice as long

TEST(CutOff, ElasticRanksKnowSoonWhichMachineIs) {
  for (const std::uint64_t seed : tests::random_seeds(12)) {
    SCOPED_TRACE(seed);
    const int on_each = 1 + static_cast<int>(seed % 2), world = on_each * (3 + static_cast<int>(seed / 2 % 3)),
              victim = static_cast<int>(seed / 8 % static_cast<std::uint64_t>(world));
    const std::uint64_t way = seed / 128 % 3;
    SCOPED_TRACE(fmt::format("{} ranks, {} on each machine, that of {} is cut off", world, on_each, victim));
    RanksThatMayBeCutOff ranks(seed, world, true, on_each);
    ranks.run_for(static_cast<Nanoseconds>(ranks.prng().below(150 * kMillisecond)));
    ranks.cut(victim, way != 1, way != 0);
    ranks.run_for(kSilence - 100 * kMillisecond);
    for (int rank = 0; rank < world; ++rank) EXPECT_FALSE(ranks.rank(rank).error) << "rank " << rank << ": too soon";
    ranks.run_for(2500 * kMillisecond);
    for (int rank = 0; rank < world; ++rank) {
      const auto& error = ranks.rank(rank).error;
      ASSERT_TRUE(error) << "rank " << rank << " still waits";
      if (ranks.is_with(rank, victim)) continue;
      EXPECT_TRUE(ranks.is_with(error->rank, victim)) << "rank " << rank << ": " << error->message;
    }
  }
}

// A short outage does not count, nor does a way that is slow as a rule.
TEST(CutOff, ElasticRanksWaitAsLongAsIsUsual) {
  for (const std::uint64_t seed : tests::random_seeds(4)) {
    SCOPED_TRACE(seed);
    const bool is_slow = seed % 2 == 0;
    RanksThatMayBeCutOff ranks(seed, 4, true, 1, is_slow ? kSecond : 40 * kMicrosecond);
    ranks.run_for(200 * kMillisecond);
    for (int outage = 0; outage < 3; ++outage) {
      ranks.cut(static_cast<int>(ranks.prng().below(4)), true, true);
      ranks.run_for(is_slow ? 2 * kSilence : kSilence * 3 / 4);
      for (int rank = 0; rank < 4; ++rank) ranks.cut(rank, true, true, false);
      ranks.run_for(5 * kSecond);
    }
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_FALSE(ranks.rank(rank).error) << "rank " << rank << ": " << ranks.rank(rank).error->message;
    }
  }
}

}  // namespace
}  // namespace netfold::group

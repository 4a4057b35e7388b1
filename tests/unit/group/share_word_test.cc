// The word of rank 0 about a share: what is written is what the others read.
#include "group/via_both/share_word.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/prng.h"
#include "support/random_seed.h"

namespace netfold::group {
namespace {

constexpr std::uint64_t kWords = 1000;
constexpr double kExact = 1 << 20;  // shares and rates are whole numbers of their units

TEST(ShareWord, IsReadAsItWasWritten) {
  for (const std::uint64_t seed : tests::random_seeds(kWords)) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    Prng prng(seed);
    const std::size_t switches = 1 + prng.below(4);
    Share share{.pace_bytes_s = 1024.0 * static_cast<double>(prng.below(1 << 20)),
                .link_bytes_s = 1024.0 * static_cast<double>(prng.below(1 << 20)),
                .gives_room = prng.chance(0.5),
                .is_measured = prng.chance(0.5),
                .piece_bytes = 1024.0 * static_cast<double>(1 + prng.below(1 << 20)),
                .small_to_switch = static_cast<std::uint32_t>(prng.next()),
                .small_switch = prng.below(switches),
                .joins_scatters = prng.chance(0.5),
                .one_way_to_switch = prng.chance(0.5),
                .one_ways_overlap = prng.chance(0.5)};
    std::vector<std::size_t> lives;
    for (std::size_t at = 0; at < switches; ++at) {
      share.of_switches.push_back(std::floor(prng.unit() * kExact / static_cast<double>(switches)) / kExact);
      lives.push_back(prng.below(1000));
      lives.push_back(prng.below(1000));
    }
    ShareWord written(switches, lives.size()), read(switches, lives.size());
    written.write(share, lives);
    read.numbers() = written.numbers();
    const Share its = read.share();
    EXPECT_EQ(its.of_switches, share.of_switches);
    EXPECT_EQ(its.pace_bytes_s, share.pace_bytes_s);
    EXPECT_EQ(its.link_bytes_s, share.link_bytes_s);
    EXPECT_EQ(its.gives_room, share.gives_room);
    EXPECT_EQ(its.is_measured, share.is_measured);
    EXPECT_EQ(its.piece_bytes, share.piece_bytes);
    EXPECT_EQ(its.small_to_switch, share.small_to_switch);
    EXPECT_EQ(its.small_switch, share.small_switch);
    EXPECT_EQ(its.joins_scatters, share.joins_scatters);
    EXPECT_EQ(its.one_way_to_switch, share.one_way_to_switch);
    EXPECT_EQ(its.one_ways_overlap, share.one_ways_overlap);
    EXPECT_EQ(read.lives(), lives);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace netfold::group

// The window of base pointers finds what the paper's procedure finds, its worked example among it, and keeps messages
// that cross the wrap of the sequence numbers.
#include "switch/aggregation/psn_window.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace netfold::switching {
namespace {

// The paper's procedure to the letter (allreduce-switch, section IV-C2): `bases` by column, 25 bits each; p0 points to
// column `next`. Empty where the distance is 128 or more.
std::optional<std::uint32_t> place_by_the_paper(const std::array<std::uint32_t, 4>& bases, std::uint32_t next,
                                                std::uint32_t psn) {
  std::uint32_t column = (next + 3) % 4;  // p3, if the PSN is smaller than all the bases
  for (const std::uint32_t p : {3u, 2u, 1u, 0u}) {
    if (psn < bases[(next + p) % 4]) continue;
    column = (next + p) % 4;
    break;
  }
  const std::uint32_t distance = ((0x1000000 | psn) - bases[column]) & 0xffffff;
  if (distance >= 128) return std::nullopt;
  return column * 128 + distance;
}

TEST(PsnWindow, IsThePapersWorkedExample) {
  PsnWindow window;
  EXPECT_EQ(window.open(0xffffe0, 16), 0u);
  EXPECT_EQ(window.open(0xfffff0, 15), 128u);
  EXPECT_EQ(window.open(0xffffff, 128), 256u);
  EXPECT_EQ(window.next_column() * 128, 384u);
  EXPECT_EQ(window.base(3), 0x1ffffffu);
  EXPECT_EQ(window.place_of(0), 257u);
  EXPECT_EQ(place_by_the_paper({0xffffe0, 0xfffff0, 0xffffff, 0x1ffffff}, 3, 0), 257u);
}

TEST(PsnWindow, BeginsWithoutAPlaceForAnything) {
  const PsnWindow window;
  for (const std::uint32_t psn : {0u, 1u, 127u, 0x7fffffu, 0xffffffu}) EXPECT_EQ(window.place_of(psn), std::nullopt);
}

TEST(PsnWindow, RefreshesTheOldestColumnForTheFifthMessage) {
  PsnWindow window;
  for (std::uint32_t message = 0; message < 4; ++message) {
    EXPECT_EQ(window.open(1000 + 128 * message, 128), 128 * message);
  }
  EXPECT_EQ(window.place_of(1000), 0u);
  EXPECT_EQ(window.place_of(1511), 511u);
  EXPECT_EQ(window.open(1512, 128), 0u);
  EXPECT_EQ(window.place_of(1000), std::nullopt);
  EXPECT_EQ(window.place_of(1128), 128u);
  EXPECT_EQ(window.place_of(1512), 0u);
}

TEST(PsnWindow, AShortMessageDoesNotCatchPacketsOfOneWhoseFirstWasLost) {
  PsnWindow window;
  window.open(100, 10);
  EXPECT_EQ(window.place_of(109), 9u);
  EXPECT_EQ(window.place_of(111), std::nullopt);
}

// Where the procedure to the letter finds a place within the message it belongs to, it is the same one.
TEST(PsnWindow, FindsWhatThePaperFinds) {
  Prng prng(13);
  std::uint64_t found = 0, only_ours = 0;
  for (int round = 0; round < 2000; ++round) {
    PsnWindow window;
    std::uint32_t psn = prng.chance(0.5) ? static_cast<std::uint32_t>(prng.below(1 << 24))
                                         : 0xffffff - static_cast<std::uint32_t>(prng.below(600));
    struct Message {
      std::uint32_t psn, packets, place;
    };
    std::vector<Message> messages;
    for (std::uint64_t count = prng.below(9); count > 0; --count) {
      const auto packets = static_cast<std::uint32_t>(2 + prng.below(127));
      messages.push_back({psn, packets, window.open(psn, packets)});
      psn = (psn + packets) & 0xffffff;
    }
    std::array<std::uint32_t, 4> bases{};
    for (std::uint32_t column = 0; column < 4; ++column) bases[column] = window.base(column);
    for (std::size_t age = 1; age <= messages.size() && age <= 4; ++age) {
      const Message& message = messages[messages.size() - age];
      for (std::uint32_t i = 0; i < message.packets; ++i) {
        const std::uint32_t of_message = (message.psn + i) & 0xffffff;
        ASSERT_EQ(window.place_of(of_message), message.place + i);
        const auto by_the_paper = place_by_the_paper(bases, window.next_column(), of_message);
        if (by_the_paper) {
          ASSERT_EQ(*by_the_paper, message.place + i);
          ++found;
        } else {
          ++only_ours;  // a message that crossed the wrap, and a newer one
        }
      }
    }
  }
  EXPECT_GT(found, 100000u);
  EXPECT_GT(only_ours, 1000u);
}

TEST(PsnWindow, GoesOnUnderNewSequenceNumbers) {
  PsnWindow window;
  window.open(10, 5);
  window.open(15, 7);
  window.forget_bases();
  EXPECT_EQ(window.place_of(16), std::nullopt);
  window.reopen(1, 0xfffffe, 7);
  EXPECT_EQ(window.place_of(0), 130u);
  EXPECT_EQ(window.open(5, 9), 256u);
}

}  // namespace
}  // namespace netfold::switching

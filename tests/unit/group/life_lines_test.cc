// Ranks tell each other about a failure, over real sockets.
#include "group/via_peers/life_lines.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "link/tcp/control_socket.h"

namespace netfold::group {
namespace {

LifeLines lines_of(int rank) {
  return {rank, 3, link::epoll_set()};
}

void connect(LifeLines& one, int rank_of_one, LifeLines& other, int rank_of_other) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  one.add(rank_of_other, std::make_unique<link::ControlSocket>(ends[0]));
  other.add(rank_of_one, std::make_unique<link::ControlSocket>(ends[1]));
}

// Rank 1 and rank 2 are connected to rank 0.
struct ThreeRanks {
  LifeLines first = lines_of(0), second = lines_of(1), third = lines_of(2);

  ThreeRanks() {
    connect(first, 0, second, 1);
    connect(first, 0, third, 2);
  }
};

// Rank 1 cannot reach rank 0 and says so. For rank 0 that looks like the fault of rank 1, but it must tell the others
// what rank 1 has said: they may hear it from rank 0 first, and all must name the same rank.
TEST(LifeLines, TheBlamedRankStaysTheSameWhenAnotherPassesItOn) {
  auto [first, second, third] = ThreeRanks();
  second.say_failed({ErrorCode::kTimeout, "rank 0 did not answer in time", 0});
  const auto blamed = first.listen(0);
  ASSERT_FALSE(blamed);
  EXPECT_EQ(blamed.error().rank, 1);
  first.say_failed(blamed.error());
  const auto told = third.listen(0);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().rank, 0) << told.error().message;
}

// An error that blames no rank is the fault of the rank that says it, for all ranks.
TEST(LifeLines, ARankThatBlamesNoOtherIsBlamed) {
  auto [first, second, third] = ThreeRanks();
  second.say_failed({ErrorCode::kSystem, "out of memory", kNoRank});
  const auto heard = first.listen(0);
  ASSERT_FALSE(heard);
  EXPECT_EQ(heard.error().rank, 1);
  first.say_failed(heard.error());
  const auto told = third.listen(0);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().rank, 1) << told.error().message;
}

}  // namespace
}  // namespace netfold::group

// Every algorithm, every world from 1 to 17, odd counts: executed in memory as schedule.h defines it, it must leave the
// exact sum on every rank, match sends with receives, and always end.
#include "schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "schedule/algorithms.h"

namespace netfold::schedule {
namespace {

using Buffer = std::vector<std::int64_t>;

class Machine {
 public:
  Machine(Request request, std::vector<Buffer> buffers) : buffers_(std::move(buffers)) {
    for (request.rank = 0; request.rank < request.world; ++request.rank) {
      auto steps = make(request);
      EXPECT_TRUE(steps) << steps.error().message;
      steps_.push_back(steps ? std::move(*steps) : Steps{});
    }
  }

  // Runs all ranks until no rank can continue; true if all have ended.
  bool run() {
    std::vector<std::size_t> at(steps_.size());
    std::vector<bool> has_sent(steps_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
        if (at[rank] == steps_[rank].size()) continue;
        const Step& step = steps_[rank][at[rank]];
        if (!has_sent[rank]) {
          send(static_cast<int>(rank), step);
          has_sent[rank] = moved = true;
        }
        if (!receive(static_cast<int>(rank), step)) continue;
        has_sent[rank] = false;
        ++at[rank];
        moved = true;
      }
    }
    for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
      if (at[rank] != steps_[rank].size()) return false;
    }
    for (const auto& [pair, queue] : wires_) EXPECT_TRUE(queue.empty()) << pair.first << " -> " << pair.second;
    return true;
  }

  const Buffer& buffer(int rank) const { return buffers_[static_cast<std::size_t>(rank)]; }
  const std::vector<Steps>& steps() const { return steps_; }

 private:
  void send(int rank, const Step& step) {
    for (const Transfer& t : step) {
      if (t.action != Action::kSend) continue;
      const auto from = buffers_[static_cast<std::size_t>(rank)].begin() + static_cast<std::ptrdiff_t>(t.offset);
      wires_[{rank, t.peer}].emplace_back(from, from + static_cast<std::ptrdiff_t>(t.count));
    }
  }

  bool receive(int rank, const Step& step) {
    std::set<std::size_t> touched;
    for (const Transfer& t : step) {
      if (t.action != Action::kSend && wires_[{t.peer, rank}].empty()) return false;
    }
    for (const Transfer& t : step) {
      if (t.action == Action::kSend) continue;
      const Buffer message = wires_[{t.peer, rank}].front();
      wires_[{t.peer, rank}].pop_front();
      EXPECT_EQ(message.size(), t.count);
      for (std::size_t i = 0; i < t.count; ++i) {
        EXPECT_TRUE(touched.insert(t.offset + i).second) << "received twice in one step";
        std::int64_t& element = buffers_[static_cast<std::size_t>(rank)][t.offset + i];
        element = message[i] + (t.action == Action::kFold ? element : 0);
      }
    }
    return true;
  }

  std::vector<Buffer> buffers_;
  std::vector<Steps> steps_;
  std::map<std::pair<int, int>, std::deque<Buffer>> wires_;
};

std::vector<Buffer> inputs(int world, std::size_t count) {
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < world; ++rank) {
    Buffer buffer(count);
    for (std::size_t i = 0; i < count; ++i) buffer[i] = (std::int64_t{1} << rank) * 1000 + static_cast<std::int64_t>(i);
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

Buffer sum_of(const std::vector<Buffer>& buffers) {
  Buffer sum(buffers[0].size());
  for (const Buffer& buffer : buffers) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += buffer[i];
  }
  return sum;
}

const std::vector<std::size_t> kCounts{0, 1, 2, 3, 7, 16, 33, 100};

class AllReduce : public ::testing::TestWithParam<const char*> {};

TEST_P(AllReduce, LeavesTheSumOnEveryRank) {
  for (int world = 1; world <= 17; ++world) {
    for (const std::size_t count : kCounts) {
      for (const int group : {1, 3, 4}) {
        SCOPED_TRACE(::testing::Message() << "world " << world << " count " << count << " group " << group);
        const auto buffers = inputs(world, count);
        Machine machine({.algorithm = {.name = GetParam(), .group = group}, .world = world, .count = count}, buffers);
        ASSERT_TRUE(machine.run()) << "it waits forever";
        for (int rank = 0; rank < world; ++rank) ASSERT_EQ(machine.buffer(rank), sum_of(buffers)) << "rank " << rank;
        if (std::string_view(GetParam()) != "hierarchical") break;
      }
    }
  }
}

TEST_P(AllReduce, CutsSegmentsAtMultiplesOfAlign) {
  for (int world = 1; world <= 9; ++world) {
    for (const std::size_t count : {0, 1, 15, 16, 17, 100, 1000}) {
      SCOPED_TRACE(::testing::Message() << "world " << world << " count " << count);
      const auto buffers = inputs(world, count);
      Machine machine({.algorithm = {.name = GetParam(), .group = 3}, .world = world, .count = count, .align = 16},
                      buffers);
      ASSERT_TRUE(machine.run()) << "it waits forever";
      for (int rank = 0; rank < world; ++rank) ASSERT_EQ(machine.buffer(rank), sum_of(buffers)) << "rank " << rank;
      for (const Steps& steps : machine.steps()) {
        for (const Step& step : steps) {
          for (const Transfer& t : step) {
            ASSERT_EQ(t.offset % 16, 0u);
            ASSERT_TRUE(t.count % 16 == 0 || t.offset + t.count == count);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, AllReduce,
                         ::testing::Values("ring", "direct", "halving-doubling", "recursive-doubling", "rabenseifner",
                                           "binomial", "double-binary-tree", "hierarchical"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::erase(name, '-');
                           return name;
                         });

void no_transfer_has_two_parts(const Request& request, const Machine& machine) {
  for (const Steps& steps : machine.steps()) {
    for (const Step& step : steps) {
      for (const Transfer& t : step) {
        bool is_inside_one = false;
        for (int rank = 0; rank < request.world; ++rank) {
          const Segment part = part_of({0, request.count}, request.world, rank, request.align);
          is_inside_one |= t.offset >= part.offset && t.offset + t.count <= part.offset + part.count;
        }
        ASSERT_TRUE(is_inside_one) << t.offset << " and " << t.count << " more";
      }
    }
  }
}

// Every rank ends a reduce-scatter with the sum of its own part, and begins an all-gather with nothing else.
void scatter_and_gather(Request request) {
  const std::size_t count = request.count;
  const auto buffers = inputs(request.world, count);
  request.collective = Collective::kReduceScatter;
  Machine scatter(request, buffers);
  ASSERT_TRUE(scatter.run()) << "it waits forever";
  no_transfer_has_two_parts(request, scatter);
  const Buffer sum = sum_of(buffers);
  auto gathered = std::vector<Buffer>(static_cast<std::size_t>(request.world), Buffer(count, -1));
  for (int rank = 0; rank < request.world; ++rank) {
    const Segment own = part_of({0, count}, request.world, rank, request.align);
    for (std::size_t i = own.offset; i < own.offset + own.count; ++i) {
      ASSERT_EQ(scatter.buffer(rank)[i], sum[i]) << "rank " << rank;
      gathered[static_cast<std::size_t>(rank)][i] = sum[i];
    }
  }
  request.collective = Collective::kAllGather;
  Machine gather(request, gathered);
  ASSERT_TRUE(gather.run()) << "it waits forever";
  no_transfer_has_two_parts(request, gather);
  for (int rank = 0; rank < request.world; ++rank) ASSERT_EQ(gather.buffer(rank), sum) << "rank " << rank;
}

class ByRank : public ::testing::TestWithParam<const char*> {};

TEST_P(ByRank, ScattersAndGathers) {
  for (int world = 1; world <= 17; ++world) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t align : {1, 4}) {
        SCOPED_TRACE(::testing::Message() << "world " << world << " count " << count << " align " << align);
        scatter_and_gather({.algorithm = {.name = GetParam()}, .world = world, .count = count, .align = align});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ByRank, ::testing::Values("ring", "direct", "halving-doubling"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(HalvingDoubling, ScattersAndGathersInLogarithmicSteps) {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAllGather}) {
    Machine machine({.collective = collective, .algorithm = {.name = "halving-doubling"}, .world = 8, .count = 800},
                    inputs(8, 800));
    for (const Steps& steps : machine.steps()) {
      std::size_t sent = 0;
      for (const Step& step : steps) {
        for (const Transfer& t : step) sent += t.action == Action::kSend ? t.count : 0;
      }
      EXPECT_EQ(steps.size(), 3u);
      EXPECT_EQ(sent, 7u * 100);
    }
  }
}

TEST(Ring, SendsEachRankTwiceItsShareLessOne) {
  Machine machine({.world = 8, .count = 800}, inputs(8, 800));
  for (const Steps& steps : machine.steps()) {
    std::size_t sent = 0;
    for (const Step& step : steps) {
      for (const Transfer& t : step) sent += t.action == Action::kSend ? t.count : 0;
    }
    EXPECT_EQ(steps.size(), 14u);
    EXPECT_EQ(sent, 2u * 7 * 100);
  }
}

class Broadcast : public ::testing::TestWithParam<const char*> {};

TEST_P(Broadcast, ReachesAllFromAnyRoot) {
  for (int world = 1; world <= 17; ++world) {
    for (int root = 0; root < world; ++root) {
      const auto buffers = inputs(world, 5);
      Machine machine({.collective = Collective::kBroadcast,
                       .algorithm = {.name = GetParam()},
                       .world = world,
                       .count = 5,
                       .root = root},
                      buffers);
      ASSERT_TRUE(machine.run());
      for (int rank = 0; rank < world; ++rank) ASSERT_EQ(machine.buffer(rank), buffers[static_cast<std::size_t>(root)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Broadcast, ::testing::Values("binomial", "ring"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(Dissemination, HearsFromAll) {
  for (int world = 1; world <= 17; ++world) {
    Machine machine({.collective = Collective::kBarrier, .algorithm = {.name = "dissemination"}, .world = world},
                    inputs(world, 0));
    ASSERT_TRUE(machine.run());
    std::vector<std::set<int>> heard(static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank) heard[static_cast<std::size_t>(rank)] = {rank};
    for (std::size_t step = 0; world > 1 && step < machine.steps()[0].size(); ++step) {
      const auto before = heard;
      for (int rank = 0; rank < world; ++rank) {
        const int from = machine.steps()[static_cast<std::size_t>(rank)][step][1].peer;
        heard[static_cast<std::size_t>(rank)].insert(before[static_cast<std::size_t>(from)].begin(),
                                                     before[static_cast<std::size_t>(from)].end());
      }
    }
    for (const auto& each : heard) EXPECT_EQ(each.size(), static_cast<std::size_t>(world));
  }
}

TEST(InNetwork, GoesToTheSwitchAndBack) {
  EXPECT_THAT(*make({.algorithm = {.name = "in-network"}, .world = 4, .rank = 2, .count = 9}),
              ::testing::ElementsAre(Step{{Action::kSend, kSwitch, 0, 9}, {Action::kStore, kSwitch, 0, 9}}));
}

// Figure 10 of eflops: the base of an eight-switch system is [[0, 3, 5, 6]; [1, 2, 4, 7]].
TEST(RankMapping, HasThePublishedBase) {
  EXPECT_THAT(*rank_mapping(1, 8), ::testing::ElementsAre(0, 3, 5, 6, 1, 2, 4, 7));
}

// The purpose of the mapping: in every step each pair's path is one direct link, and no link carries two pairs.
TEST(RankMapping, GivesEveryConnectionALinkOfItsOwn) {
  for (const auto& [sub_nodes, switches] : std::vector<std::pair<int, int>>{
           {1, 8}, {2, 8}, {4, 8}, {4, 16}, {8, 16}, {16, 32}, {16, 64}, {4, 32}, {8, 32}}) {
    SCOPED_TRACE(::testing::Message() << sub_nodes << " x " << switches);
    const int world = sub_nodes * switches;
    for (int distance_step = 0; (1 << distance_step) < world; ++distance_step) {
      std::map<std::pair<int, int>, int> pairs_on;
      for (int rank = 0; rank < world; ++rank) {
        const auto steps = make({.algorithm = {"hdrm", sub_nodes, switches},
                                 .world = world,
                                 .rank = rank,
                                 .count = static_cast<std::size_t>(world)});
        ASSERT_TRUE(steps);
        const int peer = (*steps)[static_cast<std::size_t>(distance_step)][0].peer;
        const int here = rank / sub_nodes, there = peer / sub_nodes;
        ASSERT_NE(here < switches / 2, there < switches / 2) << "partners on the same half";
        if (rank < peer) ++pairs_on[{here, there}];
      }
      for (const auto& [link, pairs] : pairs_on) ASSERT_EQ(pairs, 1) << "step " << distance_step;
    }
  }
}

TEST(Hdrm, LeavesTheSumOnEveryRank) {
  const auto buffers = inputs(32, 77);
  Machine machine({.algorithm = {"hdrm", 4, 8}, .world = 32, .count = 77}, buffers);
  ASSERT_TRUE(machine.run());
  for (int rank = 0; rank < 32; ++rank) ASSERT_EQ(machine.buffer(rank), sum_of(buffers));
}

TEST(Hdrm, MovesWithTheRanks) {
  std::vector<int> order(32);
  for (int position = 0; position < 32; ++position) order[static_cast<std::size_t>(position)] = (7 * position + 3) % 32;
  const Request request{.algorithm = {"hdrm", 4, 8}, .world = 32, .count = 77, .order = order};
  const auto buffers = inputs(32, 77);
  Machine machine(request, buffers);
  ASSERT_TRUE(machine.run());
  for (int rank = 0; rank < 32; ++rank) ASSERT_EQ(machine.buffer(rank), sum_of(buffers));
  Request there = request, here = request;
  here.order.clear();
  for (int position = 0; position < 32; ++position) {
    here.rank = position;
    there.rank = order[static_cast<std::size_t>(position)];
    const auto plain = make(here), moved = make(there);
    ASSERT_TRUE(plain && moved);
    for (std::size_t step = 0; step < plain->size(); ++step) {
      const int partner = (*plain)[step][0].peer;
      EXPECT_EQ((*moved)[step][0].peer, order[static_cast<std::size_t>(partner)]);
    }
  }
}

// 13 ranks on a BiGraph of 2 x 4 positions: five ranks hand over to those at positions 1, 2, 4, 5 and 7.
TEST(Hdrm, LetsOtherRanksHandOver) {
  const std::vector<int> order{12, 3, 7, 0, 9, 1, 5, 11, -1, 2, 10, -1, 4, 6, -1, 8};
  for (const std::size_t count : kCounts) {
    SCOPED_TRACE(count);
    Request request{.algorithm = {"hdrm", 2, 4}, .world = 13, .count = count, .order = order};
    const auto buffers = inputs(13, count);
    Machine machine(request, buffers);
    ASSERT_TRUE(machine.run());
    for (int rank = 0; rank < 13; ++rank) ASSERT_EQ(machine.buffer(rank), sum_of(buffers));
    scatter_and_gather(request);
  }
  for (std::size_t position = 0; position < 8; ++position) {  // an extra talks to that rank only
    const int extra = order[8 + position];
    if (extra < 0) continue;
    const auto steps = make({.algorithm = {"hdrm", 2, 4}, .world = 13, .rank = extra, .count = 100, .order = order});
    ASSERT_TRUE(steps);
    EXPECT_THAT(*steps, ::testing::ElementsAre(Step{{Action::kSend, order[position], 0, 100}},
                                               Step{{Action::kStore, order[position], 0, 100}}));
  }
}

TEST(Schedule, SaysWhyItCannot) {
  const auto message = [](const Request& request) {
    const auto steps = make(request);
    EXPECT_FALSE(steps);
    return steps ? "" : steps.error().message;
  };
  EXPECT_THAT(message({.algorithm = {.name = "butterfly"}}), ::testing::HasSubstr("ring"));
  EXPECT_THAT(message({.world = 4, .rank = 4}), ::testing::HasSubstr("rank 4"));
  EXPECT_THAT(message({.algorithm = {"hdrm", 3, 2}, .world = 6}), ::testing::HasSubstr("powers of two"));
  EXPECT_THAT(message({.algorithm = {"hdrm", 2, 2}, .world = 6}), ::testing::HasSubstr("not 6 ranks"));
  EXPECT_THAT(message({.algorithm = {"hdrm", 1, 2}, .world = 2, .order = {1, 1}}),
              ::testing::HasSubstr("each of the 2 ranks once"));
  EXPECT_THAT(message({.algorithm = {"hdrm", 1, 2}, .world = 3, .order = {1, 0, 2}}),
              ::testing::HasSubstr("each of 2 positions"));
  EXPECT_THAT(message({.algorithm = {"hdrm", 1, 2}, .world = 3, .order = {1, 0, -1, -1}}),
              ::testing::HasSubstr("each of the 3 ranks once"));
  EXPECT_THAT(message({.algorithm = {"hdrm", 1, 2}, .world = 2, .order = {-1, 0, 1, -1}}),
              ::testing::HasSubstr("each of the 2 ranks once"));
  EXPECT_THAT(message({.algorithm = {.name = "hierarchical"}, .world = 6}), ::testing::HasSubstr("group"));
  EXPECT_THAT(message({.collective = Collective::kBroadcast, .algorithm = {.name = "rabenseifner"}}),
              ::testing::HasSubstr("binomial"));
  EXPECT_THAT(message({.collective = Collective::kBarrier}), ::testing::HasSubstr("dissemination"));
}

}  // namespace
}  // namespace netfold::schedule

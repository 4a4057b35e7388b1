// Messages between ranks over shared memory, driven by hand: two or three ranks in one thread.
#include "group/via_peers/messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/prng.h"
#include "link/shm/shm_stream.h"
#include "support/random_seed.h"

namespace netfold::group {
namespace {

using Bytes = std::vector<std::byte>;
using Ticket = Messages::Ticket;

Bytes some_bytes(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

// All ranks of one machine, each with its half of a stream to every other.
class RanksOverSharedMemory {
 public:
  explicit RanksOverSharedMemory(int world, std::size_t ring_bytes = std::size_t{1} << 16)
      : links_(static_cast<std::size_t>(world)) {
    for (auto& links : links_) links.resize(static_cast<std::size_t>(world));
    for (int i = 0; i < world; ++i) bells_.push_back(link::Doorbell::create());
    for (int low = 0; low < world; ++low) {
      for (int high = low + 1; high < world; ++high) {
        const auto made = link::ShmSegment::create(ring_bytes);
        const auto found = link::ShmSegment::open(dup(made->descriptor()));
        links_[at(low)][at(high)] = link::shm_stream(*made, true, bells_[at(high)]);
        links_[at(high)][at(low)] = link::shm_stream(*found, false, bells_[at(low)]);
      }
    }
    for (int rank = 0; rank < world; ++rank) {
      std::vector<link::StreamLink*> links;
      for (const auto& each : links_[at(rank)]) links.push_back(each.get());
      ranks_.push_back(std::make_unique<Messages>(rank, links));
    }
  }

  Messages& operator[](int rank) { return *ranks_[at(rank)]; }
  link::StreamLink& link(int from, int to) { return *links_[at(from)][at(to)]; }

  Ticket send(int rank, int to, const Bytes& bytes, std::uint64_t tag = 0) {
    CollectiveRequest request{.in = bytes.data(), .count = bytes.size(), .collective = schedule::Collective::kSend};
    request.peer = to;
    request.tag = tag;
    (*this)[rank].submit(++last_, request, bytes.size());
    return last_;
  }
  Ticket receive(int rank, int from, Bytes& bytes, std::uint64_t tag = 0, std::int32_t* sender = nullptr) {
    CollectiveRequest request{.out = bytes.data(), .count = bytes.size(), .collective = schedule::Collective::kReceive};
    request.peer = from;
    request.tag = tag;
    request.sender = sender;
    (*this)[rank].submit(++last_, request, bytes.size());
    return last_;
  }

  // Until nothing moves. The first error of any rank ends it.
  Result<void> run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (const auto& each : ranks_) {
        const auto moved = each->pump();
        if (!moved) return tl::unexpected(moved.error());
        moves = moves || *moved;
        for (const Ticket ticket : each->take_finished()) finished_.push_back(ticket);
      }
    }
    return {};
  }
  bool is_finished(Ticket ticket) const { return std::ranges::find(finished_, ticket) != finished_.end(); }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<std::shared_ptr<link::Doorbell>> bells_;
  std::vector<std::vector<std::unique_ptr<link::StreamLink>>> links_;
  std::vector<std::unique_ptr<Messages>> ranks_;
  std::vector<Ticket> finished_;
  Ticket last_ = 0;
};

const std::vector<std::size_t> kSizes{
    0, 1, 63, 64, 65, 1000, Messages::kSmallBytesMax, Messages::kSmallBytesMax + 1, 300'001};

TEST(Messages, EverySizeArrivesWhoeverComesFirst) {
  for (const bool receives_first : {true, false}) {
    RanksOverSharedMemory ranks(2);
    for (const std::size_t size : kSizes) {
      const Bytes sent = some_bytes(size, 3);
      Bytes received(size);
      Ticket receive = receives_first ? ranks.receive(1, 0, received, 9) : 0;
      ASSERT_TRUE(ranks.run());
      const Ticket send = ranks.send(0, 1, sent, 9);
      ASSERT_TRUE(ranks.run());
      if (!receives_first) receive = ranks.receive(1, 0, received, 9);
      ASSERT_TRUE(ranks.run());
      EXPECT_TRUE(ranks.is_finished(send)) << size;
      EXPECT_TRUE(ranks.is_finished(receive)) << size;
      EXPECT_EQ(received, sent) << size;
    }
    EXPECT_TRUE(ranks[0].is_idle() && ranks[1].is_idle());
  }
}

TEST(Messages, ASmallSendDoesNotWaitForItsReceiveAndALargeOneDoes) {
  RanksOverSharedMemory ranks(2);
  const Bytes small = some_bytes(100, 1), large = some_bytes(Messages::kSmallBytesMax + 1, 2);
  const Ticket small_send = ranks.send(0, 1, small), large_send = ranks.send(0, 1, large);
  ASSERT_TRUE(ranks.run());
  EXPECT_TRUE(ranks.is_finished(small_send));
  EXPECT_FALSE(ranks.is_finished(large_send));
  EXPECT_TRUE(ranks[0].waits_for(1));
  EXPECT_EQ(ranks[0].blocking_ranks(), std::vector<int>{1});
}

TEST(Messages, TagsChooseAndOneTagKeepsItsOrder) {
  RanksOverSharedMemory ranks(2);
  std::vector<Bytes> sent, received(12, Bytes(500));
  for (int i = 0; i < 12; ++i) sent.push_back(some_bytes(500, i));
  for (std::size_t i = 0; i < 12; ++i) ranks.send(0, 1, sent[i], i % 3);
  ASSERT_TRUE(ranks.run());
  for (const std::uint64_t tag : {2, 0, 1}) {
    for (std::size_t i = tag; i < 12; i += 3) ranks.receive(1, 0, received[i], tag);
  }
  ASSERT_TRUE(ranks.run());
  EXPECT_EQ(received, sent);
}

TEST(Messages, AReceiveFromAnyRankSaysFromWhich) {
  RanksOverSharedMemory ranks(3);
  const Bytes from_two = some_bytes(70'000, 2), from_one = some_bytes(70, 1);
  Bytes first(70'000), second(70);
  std::int32_t sender_of_first = -1, sender_of_second = -1;
  ranks.receive(0, kNoRank, first, 1, &sender_of_first);
  EXPECT_EQ(ranks[0].blocking_ranks(), (std::vector<int>{1, 2}));
  ranks.send(2, 0, from_two, 1);
  ranks.send(1, 0, from_one, 2);
  ASSERT_TRUE(ranks.run());
  ranks.receive(0, kNoRank, second, 2, &sender_of_second);
  ASSERT_TRUE(ranks.run());
  EXPECT_EQ(sender_of_first, 2);
  EXPECT_EQ(sender_of_second, 1);
  EXPECT_EQ(first, from_two);
  EXPECT_EQ(second, from_one);
}

TEST(Messages, WhatNobodyReceivesTakesBoundedMemory) {
  RanksOverSharedMemory ranks(2);
  const Bytes message = some_bytes(1000, 5);
  std::vector<Ticket> sends;
  for (int i = 0; i < 500; ++i) sends.push_back(ranks.send(0, 1, message));
  Bytes other(1), answer = some_bytes(1, 1);
  ranks.receive(1, 0, other, 77);  // so that it reads what comes
  ASSERT_TRUE(ranks.run());
  const auto gone = std::ranges::count_if(sends, [&](Ticket each) { return ranks.is_finished(each); });
  EXPECT_GT(gone, 10);
  EXPECT_LE(static_cast<std::size_t>(gone) * message.size(), Messages::kCreditBytes);
  std::vector<Bytes> received(500, Bytes(1000));
  for (Bytes& each : received) ranks.receive(1, 0, each);
  ranks.send(0, 1, answer, 77);
  ASSERT_TRUE(ranks.run());
  for (const Bytes& each : received) ASSERT_EQ(each, message);
  for (const Ticket each : sends) ASSERT_TRUE(ranks.is_finished(each));
}

TEST(Messages, SizesThatDifferAreAnErrorThatNamesTheSender) {
  for (const std::size_t size : {std::size_t{16}, Messages::kSmallBytesMax + 5}) {
    for (const bool receives_first : {true, false}) {
      RanksOverSharedMemory ranks(2);
      const Bytes sent = some_bytes(size, 1);
      Bytes received(8), other(1);
      if (receives_first) ranks.receive(1, 0, received, 4);
      ranks.send(0, 1, sent, 4);
      if (!receives_first) {
        ranks.receive(1, 0, other, 5);
        ASSERT_TRUE(ranks.run());
        ranks.receive(1, 0, received, 4);
      }
      const auto ran = ranks.run();
      ASSERT_FALSE(ran);
      EXPECT_EQ(ran.error().rank, 0);
      EXPECT_EQ(ran.error().code, ErrorCode::kMismatch);
      EXPECT_NE(ran.error().message.find("with tag 4"), std::string::npos) << ran.error().message;
    }
  }
}

TEST(Messages, GarbageIsAnErrorThatNamesItsSender) {
  Prng prng(tests::random_seed());
  for (int round = 0; round < 200; ++round) {
    RanksOverSharedMemory ranks(2);
    Bytes received(8);
    ranks.receive(1, 0, received);
    auto room = ranks.link(0, 1).writable().first(64);
    for (std::byte& each : room) each = static_cast<std::byte>(prng.next());
    if (round % 2 == 0) {  // only its kind or what it says is nonsense
      const std::uint32_t magic = 0x6d657367, kind = static_cast<std::uint32_t>(2 + prng.below(6));
      std::memcpy(room.data(), &magic, sizeof magic);
      std::memcpy(room.data() + sizeof magic, &kind, sizeof kind);
    }
    ranks.link(0, 1).commit(64);
    const auto ran = ranks.run();
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().rank, 0);
  }
}

TEST(Messages, ARankMayLeaveWithReceivesForWhichNothingHasCome) {
  RanksOverSharedMemory ranks(2);
  Bytes received(8), large = some_bytes(100'000, 1);
  const Ticket receive = ranks.receive(0, 1, received);
  ASSERT_TRUE(ranks.run());
  EXPECT_TRUE(ranks[0].may_leave());
  const Ticket send = ranks.send(0, 1, large);
  ASSERT_TRUE(ranks.run());
  EXPECT_FALSE(ranks[0].may_leave());
  EXPECT_EQ(ranks[0].abandon(), (std::vector<Ticket>{receive, send}));
  EXPECT_TRUE(ranks[0].is_idle());
}

TEST(Messages, ManyInEveryOrderOverSmallRings) {
  Prng prng(tests::random_seed());
  for (int round = 0; round < 30; ++round) {
    constexpr int kWorld = 3;
    RanksOverSharedMemory ranks(kWorld, 4096);
    struct Message {
      Bytes sent, received;
      int from, to;
      std::uint64_t tag;
      std::int32_t sender = -1;
      bool is_any;
    };
    std::vector<Message> messages(60);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      Message& each = messages[i];
      each.from = static_cast<int>(prng.below(kWorld));
      each.to = (each.from + 1 + static_cast<int>(prng.below(kWorld - 1))) % kWorld;
      each.tag = i;  // its own: then any receive from any rank gets it
      each.is_any = prng.chance(0.3);
      each.sent = some_bytes(prng.below(prng.chance(0.3) ? 60'000 : 900), static_cast<int>(i));
      each.received.resize(each.sent.size());
    }
    std::vector<std::size_t> order(2 * messages.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
    for (const std::size_t each : order) {
      Message& message = messages[each / 2];
      if (each % 2 == 0) {
        ranks.send(message.from, message.to, message.sent, message.tag);
      } else {
        ranks.receive(message.to, message.is_any ? kNoRank : message.from, message.received, message.tag,
                      &message.sender);
      }
      if (prng.chance(0.3)) {
        ASSERT_TRUE(ranks.run());
      }
    }
    ASSERT_TRUE(ranks.run());
    for (const Message& each : messages) {
      ASSERT_EQ(each.received, each.sent) << "round " << round << " tag " << each.tag;
      ASSERT_EQ(each.sender, each.from);
    }
    for (int rank = 0; rank < kWorld; ++rank) EXPECT_TRUE(ranks[rank].is_idle());
  }
}

}  // namespace
}  // namespace netfold::group

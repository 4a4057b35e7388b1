// The queue between a worker and its agent: what goes in comes out, and a hostile neighbour reaches nothing outside.
#include "group/via_agent/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "base/prng.h"
#include "group/via_agent/channel.h"
#include "group/via_agent/undo_log.h"
#include "support/random_seed.h"

namespace netfold::group {
namespace {

struct Entry {
  std::uint64_t number = 0, twice = 0;
};
constexpr std::size_t kPlaces = 8;
using SmallRing = Ring<Entry, kPlaces>;

TEST(AgentRing, CarriesEntriesInOrderAndSaysWhenItIsFull) {
  auto ring = std::make_unique<SmallRing>();
  RingWriter<Entry, kPlaces> writer(*ring);
  RingReader<Entry, kPlaces> reader(*ring);
  std::uint64_t written = 0, read = 0;
  for (int round = 0; round < 100; ++round) {
    while (writer.push({written, 2 * written})) ++written;
    EXPECT_EQ(written - read, kPlaces);
    for (int i = 0; i < 1 + round % 8; ++i) {
      const auto entry = reader.pop();
      ASSERT_TRUE(entry);
      EXPECT_EQ(entry->number, read++);
    }
  }
}

TEST(AgentRing, LosesNoBell) {
  auto ring = std::make_unique<SmallRing>();
  RingWriter<Entry, kPlaces> writer(*ring);
  RingReader<Entry, kPlaces> reader(*ring);
  EXPECT_TRUE(reader.may_sleep());
  EXPECT_TRUE(writer.push({1, 2}));
  EXPECT_TRUE(writer.reader_sleeps());
  EXPECT_FALSE(writer.reader_sleeps()) << "one bell is enough";
  EXPECT_FALSE(reader.may_sleep()) << "there is an entry";
}

TEST(AgentRing, ServesTwoThreads) {
  auto ring = std::make_unique<SmallRing>();
  constexpr std::uint64_t kEntries = 20'000;
  std::thread thread([&] {
    RingWriter<Entry, kPlaces> writer(*ring);
    for (std::uint64_t i = 0; i < kEntries;) {
      if (writer.push({i, 2 * i})) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  RingReader<Entry, kPlaces> reader(*ring);
  for (std::uint64_t i = 0; i < kEntries;) {
    const auto entry = reader.pop();
    if (!entry) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(entry->number, i);
    EXPECT_EQ(entry->twice, 2 * i++);
  }
  thread.join();
}

// The sanitizers of `make sanitize` see any step outside; here what stands around the ring must stay as it was.
TEST(AgentRing, AHostileNeighbourReachesNothingOutside) {
  struct Guarded {
    std::uint64_t before[64];
    SmallRing ring;
    std::uint64_t behind[64];
  };
  Prng prng(tests::random_seed());
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << tests::random_seed());
  auto guarded = std::make_unique<Guarded>();
  std::memset(guarded->before, 0x5a, sizeof guarded->before);
  std::memset(guarded->behind, 0x5a, sizeof guarded->behind);
  for (int life = 0; life < 2000; ++life) {
    RingWriter<Entry, kPlaces> writer(guarded->ring);
    RingReader<Entry, kPlaces> reader(guarded->ring);
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t wild = prng.chance(0.5) ? prng.next() : prng.below(4 * kPlaces);
      if (prng.chance(0.3)) guarded->ring.written = wild;
      if (prng.chance(0.3)) guarded->ring.read = wild;
      if (prng.chance(0.3)) guarded->ring.reader_sleeps = static_cast<std::uint32_t>(wild);
      writer.push({wild, wild});
      writer.reader_sleeps();
      int popped = 0;
      while (reader.pop()) ASSERT_LE(++popped, static_cast<int>(kPlaces));
      reader.may_sleep();
    }
  }
  for (const std::uint64_t word : guarded->before) EXPECT_EQ(word, 0x5a5a5a5a5a5a5a5au);
  for (const std::uint64_t word : guarded->behind) EXPECT_EQ(word, 0x5a5a5a5a5a5a5a5au);
}

TEST(AgentRing, TooMuchIsNoticed) {
  auto ring = std::make_unique<SmallRing>();
  RingReader<Entry, kPlaces> reader(*ring);
  ring->written = kPlaces + 1;
  EXPECT_FALSE(reader.pop());
  EXPECT_TRUE(reader.is_broken());
}

constexpr int kRingWorld = 4, kRingRank = 1;

Request ring_request_for(schedule::Collective collective) {
  static float number = 0;
  return Request::of(7, {.in = &number, .out = &number, .count = 1, .collective = collective, .root = 2});
}

TEST(AgentRequest, SaysWhatWasAskedFor) {
  for (int each = 0; each <= static_cast<int>(schedule::Collective::kBarrier); ++each) {
    const auto collective = static_cast<schedule::Collective>(each);
    const auto order = check(ring_request_for(collective), kRingWorld, kRingRank);
    ASSERT_TRUE(order) << order.error().message;
    EXPECT_EQ(order->what.collective, collective);
    EXPECT_EQ(order->what.root, 2);
    EXPECT_EQ(order->what.algorithm.name, "ring");
  }
}

TEST(AgentRequest, EveryFieldIsChecked) {
  using schedule::Collective;
  const auto refuses = [&](auto spoil, Collective collective = Collective::kAllReduce) {
    Request bad = ring_request_for(collective);
    spoil(bad);
    EXPECT_FALSE(check(bad, kRingWorld, kRingRank));
  };
  refuses([](Request& r) { r.ticket = 0; });
  refuses([](Request& r) { r.collective = 5; });
  refuses([](Request& r) { r.root = -1; });
  refuses([](Request& r) { r.root = kRingWorld; });
  refuses([](Request& r) { r.type = 4; });
  refuses([](Request& r) { r.format = 0; });
  refuses([](Request& r) { r.format = 6; });
  refuses([](Request& r) { r.format = 4; });  // fp32 as int32
  refuses([](Request& r) { r.block = 12; });
  refuses([](Request& r) { r.mantissa = 9; });
  refuses([](Request& r) { r.count = UINT64_MAX; });
  refuses([](Request& r) { r.count = UINT64_MAX / 4; });
  refuses([](Request& r) { r.in = 0; });
  refuses([](Request& r) { r.out = UINT64_MAX - 2; });
  refuses([](Request& r) { std::memset(r.algorithm, 'x', sizeof r.algorithm); });
  refuses([](Request& r) { std::memset(r.between, 'x', sizeof r.between); });
  for (const auto collective : {Collective::kAllGather, Collective::kBroadcast, Collective::kBarrier}) {
    refuses([](Request& r) { r.average = 1; }, collective);
  }
  // A part fits, all ranks' parts do not.
  for (const auto collective : {Collective::kReduceScatter, Collective::kAllGather}) {
    refuses([](Request& r) { r.count = std::uint64_t{1} << 47; }, collective);
  }
  refuses([](Request& r) { r.in = UINT64_MAX - 5; }, Collective::kReduceScatter);
  refuses([](Request& r) { r.out = UINT64_MAX - 5; }, Collective::kAllGather);
}

TEST(AgentRequest, NoiseNeverPassesForAnAddress) {
  Prng prng(tests::random_seed());
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << tests::random_seed());
  int passed = 0;
  for (int i = 0; i < 100'000; ++i) {
    Request request = ring_request_for(static_cast<schedule::Collective>(prng.below(5)));
    auto* const bytes = reinterpret_cast<unsigned char*>(&request);
    for (std::size_t at = 0; at < sizeof request; ++at) {
      if (prng.chance(0.05)) bytes[at] = static_cast<unsigned char>(prng.next());
    }
    const auto order = check(request, kRingWorld, kRingRank);
    if (!order) continue;
    ++passed;
    const BufferLayout layout = buffer_layout_of(order->what.collective, order->what.count, kRingWorld, kRingRank);
    EXPECT_LE(order->in, UINT64_MAX - layout.in.count * order->element_bytes());
    EXPECT_LE(order->out, UINT64_MAX - layout.out.count * order->element_bytes());
    EXPECT_LT(order->what.algorithm.name.size(), sizeof request.algorithm);
  }
  EXPECT_GT(passed, 1000);
}

TEST(UndoLog, PutsBackWhatWasMarkedAndNothingElse) {
  auto log = UndoLog::make();
  ASSERT_TRUE(log);
  std::vector<float> tensor(100, 2), other(100, 2);
  const auto keep = [&](std::uint64_t ticket, std::vector<float>& of, std::size_t first, std::size_t count) {
    const auto slot = log->take();
    ASSERT_TRUE(slot);
    for (std::size_t i = 0; i < count; ++i) reinterpret_cast<float*>((*slot)->data())[i] = 1;
    (*slot)->is_for(reinterpret_cast<std::uintptr_t>(of.data() + first), count * sizeof(float));
    (*slot)->mark(ticket);
  };
  keep(1, tensor, 10, 20);
  keep(2, other, 0, 100);   // of a request that is done
  keep(1, tensor, 90, 20);  // reaches over the end: a lie
  keep(1, other, 0, 10);    // elsewhere: a lie
  const auto worker = log->for_worker();
  ASSERT_TRUE(worker);
  const Extent extent{reinterpret_cast<std::byte*>(tensor.data()), tensor.size() * sizeof(float)};
  ASSERT_TRUE(undo(*worker, {{1, extent}}));
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(tensor[i], i >= 10 && i < 30 ? 1 : 2) << i;
    EXPECT_EQ(other[i], 2) << i;
  }
}

TEST(UndoLog, TheWorkerCannotWriteIt) {
  auto log = UndoLog::make();
  ASSERT_TRUE(log && log->take());
  const auto worker = log->for_worker();
  ASSERT_TRUE(worker);
  EXPECT_FALSE(link::Mapping::of(*worker, 0, kSlotBytes, true));
  EXPECT_TRUE(link::cannot_shrink(*worker));
}

}  // namespace
}  // namespace netfold::group

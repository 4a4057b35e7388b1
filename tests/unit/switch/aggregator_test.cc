#include "switch/aggregation/aggregator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <span>
#include <string>
#include <vector>

namespace netfold::switching {
namespace {

using numbers::Format;
using wire::Header;
using wire::Kind;

// The packets that the aggregator sent, in order.
class Recorder : public AggregatorOutput {
 public:
  static constexpr int kHost = -2;
  static constexpr std::uint16_t kRanks = 2;  // where not all get the same
  struct Sent {
    int to;  // rank, -1 for all, kHost
    Header header;
    std::vector<float> elements;
  };

  void result_to_all(std::uint32_t, std::span<const std::byte> packet) override { record(-1, packet); }
  void result_to_some(std::uint32_t, std::span<const std::byte> packet, std::span<const std::byte> done,
                      Receivers receivers) override {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) record(rank, receivers.have(rank) ? packet : done);
  }
  void result_to_one(std::uint16_t worker, std::uint32_t, std::span<const std::byte> packet) override {
    record(worker, packet);
  }
  void notice(std::uint16_t worker, std::span<const std::byte> packet) override { record(worker, packet); }
  void complete(std::span<const std::byte> packet) override { record(kHost, packet); }
  void mismatch(std::uint16_t rank, std::string what) override { mismatches.emplace_back(rank, std::move(what)); }

  std::vector<Sent> take() { return std::exchange(sent_, {}); }
  std::vector<std::pair<int, std::string>> mismatches;

 private:
  void record(int to, std::span<const std::byte> bytes) {
    wire::Packet packet;
    ASSERT_EQ(wire::parse(bytes, packet), wire::ParseError::kNone);
    Sent sent{to, packet.header, std::vector<float>(packet.payload.size() / sizeof(float))};
    std::ranges::copy(packet.payload, std::as_writable_bytes(std::span(sent.elements)).begin());
    sent_.push_back(std::move(sent));
  }
  std::vector<Sent> sent_;
};

class AggregatorTest : public ::testing::Test {
 protected:
  AggregatorTest() {
    lease_.job = 2;
    lease_.epoch = 77;
    lease_.world = 2;
    lease_.slots = 4;
    lease_.payload_bytes = 64;
    make();
  }

  void make() { aggregator_ = std::make_unique<Aggregator>(lease_, 0); }

  Verdict contribute(std::uint16_t rank, std::uint32_t chunk, std::vector<float> elements, std::uint8_t flags = 0) {
    Header header{.kind = Kind::kContribution,
                  .format = Format::kFp32,
                  .flags = flags,
                  .job = lease_.job,
                  .worker = rank,
                  .epoch = lease_.epoch,
                  .slot = lease_.slot_of(chunk),
                  .count = static_cast<std::uint16_t>(elements.size()),
                  .chunk = chunk};
    return aggregator_->on_packet({header, std::as_bytes(std::span(elements)), {}}, 0, outbox_);
  }

  // Of a chunk with an owner.
  Verdict offer(Kind kind, std::uint16_t rank, std::uint16_t owner, std::vector<float> elements, std::uint16_t count,
                std::uint32_t chunk = 0) {
    const Header header{.kind = kind,
                        .format = kind == Kind::kScatter ? Format::kFp32 : Format::kNone,
                        .worker = rank,
                        .count = count,
                        .chunk = chunk,
                        .owner = owner};
    return aggregator_->on_packet({header, std::as_bytes(std::span(elements)), {}}, 0, outbox_);
  }

  // `sent_after`: chunks that the rank has sent after this one.
  Verdict probe(std::uint16_t rank, std::uint32_t chunk, std::uint16_t sent_after = 0) {
    const Header header{
        .kind = Kind::kProbe, .worker = rank, .slot = lease_.slot_of(chunk), .count = sent_after, .chunk = chunk};
    return aggregator_->on_packet({header, {}, {}}, 0, outbox_);
  }

  // The host asks for all chunks before this one.
  Verdict await(std::uint32_t chunk) {
    const Header header{
        .kind = Kind::kAwait, .worker = wire::kSwitchWorker, .slot = lease_.slot_of(chunk), .chunk = chunk};
    return aggregator_->on_packet({header, {}, {}}, 0, outbox_);
  }
  // Whom the packets since the last call went to, the host's as the number of the chunk they name.
  std::vector<std::uint32_t> signals() {
    std::vector<std::uint32_t> chunks;
    for (const auto& sent : outbox_.take()) {
      if (sent.to != Recorder::kHost) continue;
      EXPECT_EQ(sent.header.kind, Kind::kComplete);
      EXPECT_EQ(sent.header.worker, wire::kSwitchWorker);
      EXPECT_EQ(sent.header.slot, lease_.slot_of(sent.header.chunk));
      chunks.push_back(sent.header.chunk);
    }
    return chunks;
  }

  wire::Lease lease_;
  std::unique_ptr<Aggregator> aggregator_;
  Recorder outbox_;
};

TEST_F(AggregatorTest, FoldsWhenAllAreIn) {
  EXPECT_EQ(contribute(1, 0, {1, 2}), Verdict::kKept);
  EXPECT_TRUE(outbox_.take().empty());
  EXPECT_EQ(contribute(0, 0, {10, 20}), Verdict::kFolded);
  const auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].to, -1);
  EXPECT_EQ(sent[0].header.kind, Kind::kResult);
  EXPECT_EQ(sent[0].header.worker, wire::kSwitchWorker);
  EXPECT_EQ(sent[0].elements, (std::vector<float>{11, 22}));
}

TEST_F(AggregatorTest, AScatteredSumIsItsOwnersAlone) {
  EXPECT_EQ(offer(Kind::kScatter, 0, 1, {1, 2}, 2), Verdict::kKept);
  EXPECT_EQ(offer(Kind::kScatter, 1, 1, {10, 20}, 2), Verdict::kFolded);
  const auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].header.kind, Kind::kDone);
  EXPECT_TRUE(sent[0].elements.empty());
  EXPECT_EQ(sent[1].header.kind, Kind::kResult);
  EXPECT_EQ(sent[1].elements, (std::vector<float>{11, 22}));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {  // and again if it was lost
    EXPECT_EQ(probe(rank, 0), Verdict::kAnswered);
    const auto again = outbox_.take();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].to, rank);
    EXPECT_EQ(again[0].header, sent[rank].header);
    EXPECT_EQ(again[0].elements, sent[rank].elements);
  }
}

TEST_F(AggregatorTest, ACopyWaitsForAllAndGoesToTheOthers) {
  EXPECT_EQ(offer(Kind::kCopy, 1, 1, {7, 8}, 8), Verdict::kKept);
  EXPECT_TRUE(outbox_.take().empty());
  EXPECT_EQ(offer(Kind::kCopy, 0, 1, {}, 8), Verdict::kFolded);
  const auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].header.kind, Kind::kCopied);
  EXPECT_EQ(sent[0].elements, (std::vector<float>{7, 8}));
  EXPECT_EQ(sent[1].header.kind, Kind::kDone);
}

TEST_F(AggregatorTest, OnlyTheOwnerSendsBytesToCopy) {
  EXPECT_EQ(offer(Kind::kCopy, 0, 1, {7, 8}, 8), Verdict::kBadLength);
  EXPECT_EQ(offer(Kind::kCopy, 1, 1, {}, 8), Verdict::kBadLength);
  EXPECT_EQ(offer(Kind::kCopy, 0, 9, {7, 8}, 8), Verdict::kBadLength);
  EXPECT_EQ(offer(Kind::kCopy, 0, 1, {}, 65), Verdict::kBadLength) << "longer than the lease allows";
}

TEST_F(AggregatorTest, ABarrierHasNoBytes) {
  EXPECT_EQ(offer(Kind::kCopy, 0, wire::kNoOwner, {}, 0), Verdict::kKept);
  EXPECT_EQ(offer(Kind::kCopy, 1, wire::kNoOwner, {}, 0), Verdict::kFolded);
  for (const auto& sent : outbox_.take()) EXPECT_EQ(sent.header.kind, Kind::kDone);
  EXPECT_EQ(probe(1, 0), Verdict::kAnswered);
  EXPECT_EQ(outbox_.take().at(0).header.kind, Kind::kDone);
}

TEST_F(AggregatorTest, RanksThatCallDifferentCollectivesAreNamed) {
  offer(Kind::kScatter, 0, 1, {1, 2}, 2);
  EXPECT_EQ(contribute(1, 0, {1, 2}), Verdict::kMismatch);
  ASSERT_EQ(outbox_.mismatches.size(), 1u);
  EXPECT_EQ(outbox_.mismatches[0].first, 1);
  EXPECT_THAT(outbox_.mismatches[0].second,
              ::testing::AllOf(::testing::HasSubstr("rank 1 offers 2 fp32 elements to all-reduce"),
                               ::testing::HasSubstr("rank 0 offers 2 fp32 elements for rank 1 to reduce-scatter")));
  make();
  offer(Kind::kCopy, 0, 0, {1}, 4);
  EXPECT_EQ(offer(Kind::kCopy, 1, 1, {1}, 4), Verdict::kMismatch) << "roots differ";
  make();
  offer(Kind::kCopy, 0, wire::kNoOwner, {}, 0);
  EXPECT_EQ(contribute(1, 0, {1, 2}), Verdict::kMismatch);
  EXPECT_THAT(outbox_.mismatches.back().second, ::testing::HasSubstr("rank 0 offers a barrier"));
}

TEST_F(AggregatorTest, AJobOfOneNeedsNoSpecialCase) {
  lease_.world = 1;
  make();
  EXPECT_EQ(contribute(0, 0, {5}), Verdict::kFolded);
  EXPECT_EQ(outbox_.take()[0].elements, std::vector<float>{5});
}

TEST_F(AggregatorTest, AHostIsToldOnceAllBeforeItsChunkIsFolded) {
  using ::testing::ElementsAre;
  lease_.world = 1;
  lease_.first_chunk = 0xffff'fffe;  // numbers wrap in the middle
  make();
  const auto chunk = [&](std::uint32_t number) { return lease_.first_chunk + number; };
  EXPECT_EQ(await(chunk(0)), Verdict::kAnswered) << "nothing is before it";
  EXPECT_THAT(signals(), ElementsAre(chunk(0)));
  EXPECT_EQ(await(chunk(6)), Verdict::kAwaited);
  for (const std::uint32_t number : {1u, 0u, 3u, 2u, 5u}) contribute(0, chunk(number), {1});
  EXPECT_TRUE(signals().empty()) << "chunk 4 is missing";
  contribute(0, chunk(4), {1});
  EXPECT_THAT(signals(), ElementsAre(chunk(6)));
  contribute(0, chunk(6), {1});
  EXPECT_TRUE(signals().empty()) << "told once";
  EXPECT_EQ(await(chunk(6)), Verdict::kAnswered) << "told again if it asks again";
  EXPECT_EQ(await(chunk(4)), Verdict::kAnswered);
  EXPECT_THAT(signals(), ElementsAre(chunk(6), chunk(4)));
  EXPECT_EQ(await(chunk(9)), Verdict::kAwaited);
  EXPECT_EQ(await(chunk(8)), Verdict::kAwaited) << "the last question counts";
  contribute(0, chunk(7), {1});
  EXPECT_THAT(signals(), ElementsAre(chunk(8)));
  contribute(0, chunk(8), {1});
  EXPECT_TRUE(signals().empty());
}

TEST_F(AggregatorTest, ADuplicateChangesNothing) {
  contribute(0, 0, {1});
  EXPECT_EQ(contribute(0, 0, {1000}), Verdict::kDuplicate);
  contribute(1, 0, {2});
  EXPECT_EQ(outbox_.take()[0].elements, std::vector<float>{3});
  EXPECT_EQ(contribute(1, 0, {1000}), Verdict::kDuplicate) << "the chunk is done";
}

// The hole of slots that know workers but not chunks: 201 where 300 was due.
TEST_F(AggregatorTest, ALateDuplicateOfTheRoundBeforeCannotReachTheNextSum) {
  contribute(0, 0, {1});
  contribute(1, 0, {2});
  contribute(0, 4, {100});
  EXPECT_EQ(contribute(1, 0, {101}), Verdict::kDuplicate);
  EXPECT_EQ(contribute(0, 0, {101}), Verdict::kDuplicate);
  outbox_.take();
  contribute(1, 4, {200});
  EXPECT_EQ(outbox_.take()[0].elements, std::vector<float>{300});
  EXPECT_EQ(contribute(0, 0, {7}), Verdict::kStaleChunk) << "two rounds old";
}

TEST_F(AggregatorTest, AChunkFromTheFutureIsDropped) {
  EXPECT_EQ(contribute(0, 8, {1}), Verdict::kStaleChunk);
  EXPECT_EQ(contribute(0, 4, {1}), Verdict::kStaleChunk) << "its slot has not folded chunk 0";
}

TEST_F(AggregatorTest, KeepsAResultUntilEveryWorkerIsKnownToHaveIt) {
  contribute(0, 0, {1});
  contribute(1, 0, {2});
  contribute(0, 4, {10});  // rank 0 has the result of chunk 0; rank 1 may not
  outbox_.take();
  EXPECT_EQ(probe(1, 0), Verdict::kAnswered);
  const auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].to, 1);
  EXPECT_EQ(sent[0].elements, std::vector<float>{3});
}

TEST_F(AggregatorTest, AProbeIsToldWhatIsMissing) {
  probe(1, 0);
  auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].header.kind, Kind::kMissing);
  EXPECT_EQ(sent[0].header.worker, 1);
  contribute(1, 0, {1});
  probe(1, 0);
  sent = outbox_.take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].header.kind, Kind::kWaiting);
  EXPECT_EQ(sent[0].header.worker, 0) << "the lowest rank that is missing";
  EXPECT_EQ(probe(1, 8), Verdict::kStaleChunk);
}

TEST_F(AggregatorTest, AsksOnceForAChunkThatEightLaterOnesOvertook) {
  lease_.slots = 32;
  make();
  for (std::uint32_t chunk = 1; chunk < 8; ++chunk) contribute(0, chunk, {1});
  EXPECT_TRUE(outbox_.take().empty());
  contribute(0, 8, {1});
  contribute(0, 9, {1});
  const auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].to, 0);
  EXPECT_EQ(sent[0].header.kind, Kind::kMissing);
  EXPECT_EQ(sent[0].header.chunk, 0u);
}

TEST_F(AggregatorTest, WorkersThatDisagreeAreReportedWithBothRanks) {
  contribute(0, 0, {1, 2});
  EXPECT_EQ(contribute(1, 0, {1}), Verdict::kMismatch);
  ASSERT_EQ(outbox_.mismatches.size(), 1u);
  EXPECT_EQ(outbox_.mismatches[0].first, 1);
  EXPECT_THAT(outbox_.mismatches[0].second, ::testing::HasSubstr("rank 1 offers 1 fp32"));
  EXPECT_THAT(outbox_.mismatches[0].second, ::testing::HasSubstr("rank 0 offers 2 fp32"));
  EXPECT_EQ(contribute(1, 0, {1, 2}, wire::kLast), Verdict::kMismatch) << "tensors of different lengths";
  EXPECT_EQ(contribute(1, 0, {1, 2}, wire::kAverage), Verdict::kMismatch) << "one divides the sum, the other does not";
  EXPECT_THAT(outbox_.mismatches.back().second,
              ::testing::HasSubstr("rank 1 offers 2 fp32 elements to all-reduce and average"));
}

TEST_F(AggregatorTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(contribute(0, 0, std::vector<float>(17)), Verdict::kBadLength) << "longer than the lease allows";
  Header header{.kind = Kind::kContribution, .format = Format::kFp32, .slot = 1, .count = 1, .chunk = 0};
  const float x = 1;
  EXPECT_EQ(aggregator_->on_packet({header, std::as_bytes(std::span(&x, 1)), {}}, 0, outbox_), Verdict::kBadSlot);
  header.slot = 0;
  header.count = 2;
  EXPECT_EQ(aggregator_->on_packet({header, std::as_bytes(std::span(&x, 1)), {}}, 0, outbox_), Verdict::kBadLength);
  header.kind = Kind::kResult;
  EXPECT_EQ(aggregator_->on_packet({header, std::as_bytes(std::span(&x, 1)), {}}, 0, outbox_), Verdict::kBadKind);
}

TEST_F(AggregatorTest, RefusesBlocksThatNoEncoderWrites) {
  std::vector<std::byte> block(17);
  block[0] = std::byte{3};  // 0 < exponent < mantissa
  const Header header{.kind = Kind::kContribution, .format = Format::kBfp, .count = 16};
  EXPECT_EQ(aggregator_->on_packet({header, block, {}}, 0, outbox_), Verdict::kMalformedBlock);
}

TEST_F(AggregatorTest, HandlesWorldsOfManyWords) {
  lease_.world = 200;
  make();
  for (std::uint16_t rank = 199; rank > 0; --rank) EXPECT_EQ(contribute(rank, 0, {1}), Verdict::kKept);
  probe(150, 0);
  EXPECT_EQ(outbox_.take()[0].header.worker, 0);
  EXPECT_EQ(contribute(0, 0, {1}), Verdict::kFolded);
  EXPECT_EQ(outbox_.take()[0].elements, std::vector<float>{200});
}

// Payloads stay with whoever lends them, results lie where the outbox gives room.
class LendingOutbox final : public Recorder {
 public:
  void result_to_all(std::uint32_t place, std::span<const std::byte> packet) override {
    folded_places.push_back(place);
    Recorder::result_to_all(place, packet);
  }
  std::byte* room_for_result(std::uint32_t, std::size_t size_bytes) override {
    if (!has_room) return nullptr;
    rooms.emplace_back(size_bytes);
    return rooms.back().data();
  }
  bool has_room = true;
  std::list<std::vector<std::byte>> rooms;
  std::vector<std::uint32_t> folded_places;
};

class LendingTest : public AggregatorTest {
 protected:
  LendingTest() { aggregator_ = std::make_unique<Aggregator>(lease_, 0, Payloads::kLent); }
  Verdict lend(std::uint16_t rank, std::uint32_t chunk, const std::vector<float>& elements) {
    const Header header{.kind = Kind::kContribution,
                        .format = Format::kFp32,
                        .worker = rank,
                        .slot = lease_.slot_of(chunk),
                        .count = static_cast<std::uint16_t>(elements.size()),
                        .chunk = chunk};
    return aggregator_->on_packet({header, std::as_bytes(std::span(elements)), {}}, 0, lender_);
  }
  LendingOutbox lender_;
};

TEST_F(LendingTest, FoldsFromWherePayloadsLie) {
  std::vector<float> first{1, 2};
  const std::vector<float> second{10, 20};
  EXPECT_EQ(lend(0, 1, first), Verdict::kKept);
  first = {5, 6};  // no program does that; it shows that nothing was copied
  EXPECT_EQ(lend(1, 1, second), Verdict::kFolded);
  EXPECT_EQ(lender_.take()[0].elements, (std::vector<float>{15, 26}));
  EXPECT_EQ(lender_.folded_places, std::vector<std::uint32_t>{1});
  EXPECT_EQ(lender_.rooms.size(), 1u);
}

TEST_F(LendingTest, WithoutRoomTheLastContributionComesAgain) {
  const std::vector<float> one{1}, two{2};
  lender_.has_room = false;
  EXPECT_EQ(lend(0, 0, one), Verdict::kKept);
  EXPECT_EQ(lend(1, 0, two), Verdict::kNoRoom);
  EXPECT_TRUE(lender_.take().empty());
  lender_.has_room = true;
  EXPECT_EQ(lend(1, 0, two), Verdict::kFolded);
  EXPECT_EQ(lender_.take()[0].elements, std::vector<float>{3});
}

TEST_F(AggregatorTest, TellsAProberWhatElseOfItsChunksIsMissing) {
  contribute(0, 1, {1});
  EXPECT_EQ(probe(0, 0, 3), Verdict::kAnswered);
  std::vector<std::uint32_t> missing;
  for (const auto& sent : outbox_.take()) {
    EXPECT_EQ(sent.to, 0);
    EXPECT_EQ(sent.header.kind, Kind::kMissing);
    missing.push_back(sent.header.chunk);
  }
  EXPECT_THAT(missing, ::testing::UnorderedElementsAre(0u, 2u, 3u)) << "chunk 1 is here";
  probe(0, 0, 0xffff);
  EXPECT_EQ(outbox_.take().size(), 3u) << "a lie about more chunks than there are slots";
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all_pages = 0, resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return resident_pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A stranger's join must not cost the switch half a gigabyte.
TEST_F(AggregatorTest, TakesMemoryWhereItIsWritten) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer of threads writes to all memory that it allocates";
#endif
  lease_.slots = 65536;
  lease_.payload_bytes = 4096;
  ASSERT_GT(Aggregator::memory_bytes(lease_), std::size_t{512} << 20);
  const std::size_t before = resident_bytes();
  make();
  EXPECT_LT(resident_bytes() - before, Aggregator::memory_bytes(lease_) / 4)
      << "the sanitizer of addresses takes some of it";
  EXPECT_EQ(contribute(0, 0, {1, 2}), Verdict::kKept);
}

TEST_F(AggregatorTest, SendsAnEchoBackAndSaysWhen) {
  constexpr Nanoseconds kNow = 5 * kSecond + 3 * kMillisecond;
  const Header header = lease_.header(Kind::kEcho, 1, 77);
  EXPECT_EQ(aggregator_->on_packet({header, {}, {}}, kNow, outbox_), Verdict::kAnswered);
  const auto sent = outbox_.take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].to, 1);
  EXPECT_EQ(sent[0].header.kind, Kind::kEcho);
  EXPECT_EQ(sent[0].header.chunk, 77u);
  EXPECT_EQ(sent[0].header.count, wire::echo_time(kNow));
}

}  // namespace
}  // namespace netfold::switching

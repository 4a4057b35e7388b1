// Case 2: every write reaches its host unmodified, the switch delivers the fold of each chunk once all are in, and what
// comes late, twice, damaged or too early changes no sum.
#include "switch/protocols/pcie/pcie_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>

#include "base/prng.h"
#include "switch/ethernet/memory_switch.h"
#include "testing/plain_fold.h"

namespace netfold::switching {
namespace {

namespace pcie = wire::pcie;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kHost = 0x020000000001, kFirstWorker = 0x020000000010;

class PcieTest : public ::testing::Test {
 protected:
  // Port 0 is the host's, worker r sits at port r + 1.
  void open(std::uint16_t world, PcieOptions options = {}) {
    world_ = world;
    switch_.emplace(static_cast<link::PortNumber>(world + 1), EthernetSwitchOptions{.pcie = options});
    handler_ = switch_->thread().pcie;
    Bytes hello(60);
    MacAddress{kHost}.write(hello.data());
    MacAddress{kHost}.write(hello.data() + 6);
    arrive(0, hello);  // the switch learns where the host is
  }

  pcie::Write write_of(std::uint16_t rank, std::uint32_t chunk) const {
    return {.job = 3,
            .epoch = 1,
            .rank = rank,
            .world = world_,
            .sequence = chunk,
            .chunk = chunk,
            .sum_address = 0x10000 + std::uint64_t{chunk} * pcie::kDataBytes,
            .requester = static_cast<std::uint16_t>(0x100 + rank),
            .address = (std::uint64_t{rank} << 32) + chunk * pcie::kDataBytes};
  }
  Bytes frame_of(const pcie::Write& write, const std::vector<float>& elements) const {
    Bytes frame(pcie::kFrameBytes);
    MacAddress{kHost}.write(frame.data());
    MacAddress{kFirstWorker + write.rank}.write(frame.data() + 6);
    write_u16(frame.data() + 12, pcie::kEtherType);
    const auto data = pcie::emit(write, std::span(frame).subspan(pcie::kEthernetBytes));
    std::memcpy(data.data(), elements.data(), data.size());
    return frame;
  }
  // The frame that then goes to the host.
  std::vector<Bytes> arrive(link::PortNumber port, const Bytes& frame) {
    std::vector<Bytes> to_host;
    for (auto& [out, bytes] : switch_->offer(port, frame, time_)) {
      if (out == 0) to_host.push_back(std::move(bytes));
    }
    return to_host;
  }
  static std::vector<float> random_elements(Prng& prng) {
    std::vector<float> elements(pcie::kElements);
    for (float& x : elements) x = static_cast<float>(prng.unit() - 0.5) * static_cast<float>(1 << prng.below(20));
    return elements;
  }

  std::uint16_t world_ = 0;
  Nanoseconds time_ = kSecond;
  std::optional<MemorySwitch> switch_;
  PcieHandler* handler_ = nullptr;
};

TEST_F(PcieTest, FoldsWhatPassesAndForwardsItUnmodified) {
  open(5, {.slots = 16});
  Prng prng(5);
  for (std::uint32_t chunk = 0; chunk < 200; ++chunk) {
    std::vector<std::vector<float>> elements;
    for (std::uint16_t rank = 0; rank < world_; ++rank) elements.push_back(random_elements(prng));
    const std::vector<float> sum = netfold::testing::plain_fold(elements, 0, world_);
    for (std::uint16_t i = 0; i < world_; ++i) {
      const auto rank = static_cast<std::uint16_t>((i + chunk) % world_);
      const Bytes sent = frame_of(write_of(rank, chunk), elements[rank]);
      const auto received = arrive(static_cast<link::PortNumber>(rank + 1), sent);
      ASSERT_EQ(received.size(), i + 1u == world_ ? 2u : 1u);
      ASSERT_EQ(received.size() == 1 ? received[0] : (received[0] == sent ? received[0] : received[1]), sent);
      if (received.size() == 1) continue;
      const Bytes& answer = received[0] == sent ? received[1] : received[0];
      pcie::Write write;
      std::span<const std::byte> data;
      ASSERT_EQ(pcie::parse(std::span(answer).subspan(pcie::kEthernetBytes), write, data), pcie::ParseError::kNone);
      EXPECT_EQ(write.kind, pcie::Kind::kSum);
      EXPECT_EQ(write.address, 0x10000 + std::uint64_t{chunk} * pcie::kDataBytes);
      EXPECT_EQ(write.sequence, chunk);
      ASSERT_EQ(0, std::memcmp(data.data(), sum.data(), data.size()));
    }
  }
  EXPECT_EQ(handler_->count(PcieVerdict::kFolded), 200u);
  EXPECT_EQ(switch_->buffers_in_use(), 0u);
}

// Chunks in any order within the slots, writes sent twice, some of them late: the host gets every write, and right
// sums.
TEST_F(PcieTest, IsRightWhateverComesTwiceOrLate) {
  open(3, {.slots = 64});
  Prng prng(7);
  std::map<std::uint32_t, std::vector<float>> sums;
  std::vector<Bytes> late;
  std::uint64_t checked = 0;
  const auto deliver = [&](const Bytes& frame) {
    const auto rank = static_cast<link::PortNumber>(static_cast<unsigned>(frame[11]) & 15);
    std::size_t unmodified = 0;
    for (const Bytes& received : arrive(static_cast<link::PortNumber>(rank + 1), frame)) {
      unmodified += received == frame ? 1 : 0;
      pcie::Write write;
      std::span<const std::byte> data;
      ASSERT_EQ(pcie::parse(std::span(received).subspan(pcie::kEthernetBytes), write, data), pcie::ParseError::kNone);
      if (write.kind != pcie::Kind::kSum) continue;
      ++checked;
      ASSERT_EQ(0, std::memcmp(data.data(), sums[write.chunk].data(), data.size()));
    }
    ASSERT_EQ(unmodified, 1u);
  };
  for (std::uint32_t first = 0; first < 2000; first += 40) {
    std::vector<Bytes> frames;
    for (std::uint32_t chunk = first; chunk < first + 40; ++chunk) {
      std::vector<std::vector<float>> elements;
      for (std::uint16_t rank = 0; rank < 3; ++rank) {
        elements.push_back(random_elements(prng));
        frames.push_back(frame_of(write_of(rank, chunk), elements.back()));
        if (prng.chance(0.2)) frames.push_back(frames.back());
        if (prng.chance(0.1)) late.push_back(frames.back());
      }
      sums[chunk] = netfold::testing::plain_fold(elements, 0, 3);
    }
    for (std::size_t i = frames.size(); i > 1; --i) std::swap(frames[i - 1], frames[prng.below(i)]);
    for (const Bytes& frame : frames) deliver(frame);
    for (; late.size() > 30; late.erase(late.begin())) deliver(late.front());
  }
  EXPECT_EQ(handler_->count(PcieVerdict::kFolded), 2000u);
  EXPECT_EQ(checked, 2000 + handler_->count(PcieVerdict::kAnswered));
  EXPECT_GT(handler_->count(PcieVerdict::kStale), 0u);
  EXPECT_GT(handler_->count(PcieVerdict::kAnswered), 0u);
}

TEST_F(PcieTest, CountsWhatItCannotFoldAndForwardsIt) {
  open(2, {.jobs_max = 1, .slots = 4});
  const std::vector<float> ones(pcie::kElements, 1.0f);
  const auto verdict_of = [&](const pcie::Write& write) {
    std::array<std::uint64_t, static_cast<std::size_t>(PcieVerdict::kCount)> before{};
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = handler_->count(static_cast<PcieVerdict>(i));
    EXPECT_GE(arrive(1, frame_of(write, ones)).size(), 1u);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (handler_->count(static_cast<PcieVerdict>(i)) != before[i]) return static_cast<PcieVerdict>(i);
    }
    return PcieVerdict::kCount;
  };
  EXPECT_EQ(verdict_of(write_of(0, 8)), PcieVerdict::kKept);
  EXPECT_EQ(verdict_of(write_of(0, 8)), PcieVerdict::kDuplicate);
  EXPECT_EQ(verdict_of(write_of(0, 12)), PcieVerdict::kAhead);
  EXPECT_EQ(verdict_of(write_of(0, 4)), PcieVerdict::kStale);
  pcie::Write other = write_of(1, 8);
  other.sum_address += 4;
  EXPECT_EQ(verdict_of(other), PcieVerdict::kMismatch);
  other = write_of(1, 8);
  other.job = 9;
  EXPECT_EQ(verdict_of(other), PcieVerdict::kNoJob);
  other = write_of(1, 8);
  other.epoch = 0;
  EXPECT_EQ(verdict_of(other), PcieVerdict::kStaleEpoch);
  other = write_of(0, 8);
  other.kind = pcie::Kind::kSum;
  other.rank = pcie::kSwitchRank;
  EXPECT_EQ(verdict_of(other), PcieVerdict::kSum);
  other = write_of(0, 8);
  other.epoch = 2;  // its workers have begun anew
  EXPECT_EQ(verdict_of(other), PcieVerdict::kKept);
  EXPECT_EQ(verdict_of(write_of(0, 8)), PcieVerdict::kStaleEpoch);
  Bytes cut = frame_of(write_of(0, 9), ones);
  cut.resize(100);
  EXPECT_THAT(arrive(1, cut), ::testing::ElementsAre(cut)) << "the host's bridge is to see it";
  EXPECT_EQ(handler_->count(PcieVerdict::kMalformed), 1u);
}

// The quick check accepts the same frames as the full parser, for any changed bit of a packet.
TEST(PciePattern, FitsExactlyTheWritesOfItsJob) {
  const pcie::Write like{.job = 0x0102, .epoch = 7, .rank = 1, .world = 3, .chunk = 5, .sum_address = 8, .address = 4};
  const pcie::Pattern pattern(like);
  Prng prng(11);
  std::size_t fitting = 0;
  for (int round = 0; round < 200'000; ++round) {
    Bytes packet(pcie::kPacketBytes);
    pcie::Write write = like;
    write.rank = static_cast<std::uint16_t>(prng.below(3));
    write.chunk = static_cast<std::uint32_t>(prng.next());
    write.sum_address = prng.next() & ~std::uint64_t{3};
    write.requester = static_cast<std::uint16_t>(prng.next());
    pcie::emit(write, packet);
    if (prng.chance(0.9)) packet[prng.below(46)] ^= static_cast<std::byte>(1 << prng.below(8));
    if (prng.chance(0.1)) packet.resize(prng.below(packet.size()));
    pcie::Pattern::Place place{};
    pcie::Write read;
    std::span<const std::byte> data;
    const bool is_right = pcie::parse(packet, read, data) == pcie::ParseError::kNone;
    const bool is_like = is_right && read.kind == pcie::Kind::kWrite && read.job == like.job &&
                         read.epoch == like.epoch && read.world == like.world && read.format == like.format;
    ASSERT_EQ(pattern.fits(packet, place), is_like) << "round " << round;
    if (!is_like) continue;
    ++fitting;
    ASSERT_EQ(place.rank, read.rank);
    ASSERT_EQ(place.chunk, read.chunk);
    ASSERT_EQ(place.sum_address, read.sum_address);
    ASSERT_EQ(pcie::data_of(packet).data(), data.data());
  }
  EXPECT_GT(fitting, 20'000u);
}

// dpdk-switch, Fig. 8: the receiving thread forwards at once, and another thread folds the frame, of which it gets a
// reference.
TEST_F(PcieTest, ForwardingNeedNotWaitForTheThreadThatFolds) {
  world_ = 2;
  link::MemoryPool pool;
  link::MemoryHandover inbox(pool);
  std::vector<std::unique_ptr<link::MemoryPort>> ports;
  PipelinePorts receives, folds;
  for (link::PortNumber port = 0; port <= world_; ++port) {
    ports.push_back(std::make_unique<link::MemoryPort>(pool, port));
    receives.receiving.push_back(port);
    for (auto* const each : {&receives, &folds}) each->all.push_back(ports.back().get());
  }
  receives.peers = {&inbox};
  folds.inbox = &inbox;
  EthernetSwitch assembly({.pcie = PcieOptions{}});
  const auto folder = assembly.make_thread(0, pool, std::move(folds)).pipeline;
  const auto receiver = assembly.make_thread(1, pool, std::move(receives)).pipeline;
  assembly.addresses().learn({kHost}, 0, time_);
  const std::vector<float> ones(pcie::kElements, 1.0f), twos(pcie::kElements, 2.0f);
  for (const bool folding : {true, false}) {
    assembly.settings().folding_ports = folding ? 0b110 : 0;
    const std::uint32_t chunk = folding ? 0 : 1;
    const Bytes one = frame_of(write_of(0, chunk), ones), two = frame_of(write_of(1, chunk), twos);
    ports[1]->arrive(one);
    ports[2]->arrive(two);
    receiver->pump(time_);
    EXPECT_THAT(ports[0]->fetch(), ::testing::ElementsAre(one, two)) << "before any thread has folded";
    EXPECT_EQ(pool.in_use(), folding ? 2u : 0u) << "references on their way to the other thread";
    folder->pump(time_);
    const auto sums = ports[0]->fetch();
    ASSERT_EQ(sums.size(), folding ? 1u : 0u);
    EXPECT_EQ(pool.in_use(), 0u);
    if (!folding) continue;
    float sum = 0;
    std::memcpy(&sum, sums[0].data() + 60, sizeof sum);
    EXPECT_EQ(sum, 3.0f);
  }
  EXPECT_EQ(receiver->counters(1).forwarded.get(), 2u);
  EXPECT_EQ(receiver->counters(1).handed_over.get(), 0u) << "one fate a frame";
}

TEST_F(PcieTest, GivesUpAChunkOfADeadWorker) {
  open(2, {.slots = 4, .age_max = 2 * kSecond});
  const std::vector<float> ones(pcie::kElements, 1.0f);
  arrive(1, frame_of(write_of(0, 0), ones));
  time_ += 3 * kSecond;
  arrive(1, frame_of(write_of(0, 1), ones));
  time_ += kMillisecond;
  arrive(1, frame_of(write_of(0, 4), ones));  // the slot of chunk 0 is free
  EXPECT_EQ(handler_->count(PcieVerdict::kKept), 3u);
  EXPECT_EQ(handler_->count(PcieVerdict::kAhead), 0u);
}

}  // namespace
}  // namespace netfold::switching

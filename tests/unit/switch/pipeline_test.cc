#include "switch/ethernet/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "link/frame_memory.h"

namespace netfold::switching {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint16_t kOwnType = 0x88b5;  // for experiments

Bytes frame_of(std::uint64_t to, std::uint64_t from, std::uint16_t type = 0x1234, unsigned mark = 0) {
  Bytes bytes(60);
  MacAddress{to}.write(bytes.data());
  MacAddress{from}.write(bytes.data() + 6);
  write_u16(bytes.data() + 12, type);
  bytes[14] = static_cast<std::byte>(mark);
  return bytes;
}

// Takes frames of its type: byte 14 says what is to become of them.
class Sample final : public ProtocolHandler {
 public:
  HandlerVerdict offer(const ParsedFrame& frame, Outbox& outbox) override {
    if (!recognises(frame)) return HandlerVerdict::kNotMine;
    switch (static_cast<int>(frame.payload()[0])) {
      case 1:  // forward unmodified, and keep
        outbox.pool().retain(frame.frame.buffer, 1);
        kept.push_back(frame.frame);
        return HandlerVerdict::kForward;
      case 2:  // keep; the third makes a frame of one body for all
        kept.push_back(frame.frame);
        if (kept.size() == 3) answer_all(outbox);
        return HandlerVerdict::kTaken;
      default: return HandlerVerdict::kDropped;
    }
  }
  void on_time(Nanoseconds, Outbox&) override { ++times; }
  bool recognises(const ParsedFrame& frame) const override { return frame.ether_type == kOwnType; }
  std::uint16_t thread_of(const ParsedFrame&, std::uint16_t) const override { return 1; }
  void on_port(link::PortNumber port, bool is_up, Outbox&) override { ports_seen.emplace_back(port, is_up); }
  void drain(Outbox& outbox) override {
    for (const link::Frame& frame : kept) outbox.pool().release({&frame.buffer, 1});
    kept.clear();
  }
  bool only_reads() const override { return reads; }
  const char* name() const override { return "sample"; }
  std::vector<std::pair<std::string, std::uint64_t>> counts() const override { return {}; }

  void answer_all(Outbox& outbox) {
    link::Frame body = outbox.pool().allocate();
    body.bytes[0] = std::byte{0x77};
    body.size_bytes = 1;
    outbox.pool().retain(body.buffer, 2);
    for (link::Frame head : kept) {
      head.size_bytes = 14;
      outbox.send(head.port, {head, body});
    }
    kept.clear();
  }

  std::vector<link::Frame> kept;
  std::vector<std::pair<link::PortNumber, bool>> ports_seen;
  int times = 0;
  bool reads = false;
};

class PipelineTest : public ::testing::Test {
 protected:
  explicit PipelineTest(std::size_t queue_max = SIZE_MAX) {
    std::vector<std::unique_ptr<ProtocolHandler>> handlers;
    handlers.push_back(std::make_unique<Sample>());
    sample_ = static_cast<Sample*>(handlers.back().get());
    PipelinePorts all;
    for (link::PortNumber number = 0; number < 3; ++number) {
      ports_.push_back(std::make_unique<link::MemoryPort>(pool_, number, queue_max));
      all.all.push_back(ports_.back().get());
      all.receiving.push_back(number);
    }
    pipeline_ = std::make_unique<Pipeline>(pool_, all, addresses_, std::move(handlers));
  }
  void pump() { pipeline_->pump(now_ += kMicrosecond); }

  link::MemoryPool pool_;
  MacTable addresses_;
  std::vector<std::unique_ptr<link::MemoryPort>> ports_;
  std::unique_ptr<Pipeline> pipeline_;
  Sample* sample_;
  Nanoseconds now_ = kSecond;
};

TEST_F(PipelineTest, FloodsThenLearns) {
  const Bytes first = frame_of(2, 4), back = frame_of(4, 2);
  ports_[0]->arrive(first);
  pump();
  EXPECT_THAT(ports_[0]->fetch(), IsEmpty());
  EXPECT_THAT(ports_[1]->fetch(), ElementsAre(first));
  EXPECT_THAT(ports_[2]->fetch(), ElementsAre(first));
  ports_[2]->arrive(back);
  pump();
  EXPECT_THAT(ports_[0]->fetch(), ElementsAre(back));
  EXPECT_THAT(ports_[1]->fetch(), IsEmpty());
  ports_[0]->arrive(frame_of(4, 6));
  pump();
  EXPECT_THAT(ports_[0]->fetch(), IsEmpty()) << "the address is where it came from";
  EXPECT_EQ(pipeline_->counters(0).filtered.get(), 1u);
  EXPECT_EQ(pipeline_->counters(0).flooded.get(), 1u);
  EXPECT_EQ(pipeline_->counters(2).forwarded.get(), 1u);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(PipelineTest, BroadcastGoesEverywhereAndTheBridgesOwnNowhere) {
  ports_[1]->arrive(frame_of(0xffff'ffff'ffff, 2));
  ports_[1]->arrive(frame_of(0x0180'c200'0000, 2));
  pump();
  EXPECT_EQ(ports_[0]->fetch().size(), 1u);
  EXPECT_EQ(ports_[2]->fetch().size(), 1u);
}

TEST_F(PipelineTest, AHandlerMayForwardAndKeep) {
  const Bytes frame = frame_of(0xffff'ffff'ffff, 2, kOwnType, 1);
  ports_[0]->arrive(frame);
  pump();
  EXPECT_THAT(ports_[1]->fetch(), ElementsAre(frame));
  EXPECT_THAT(ports_[2]->fetch(), ElementsAre(frame));
  EXPECT_EQ(pool_.in_use(), 1u);
  EXPECT_EQ(sample_->kept.size(), 1u);
}

TEST_F(PipelineTest, OneBodyLeavesByAllPorts) {
  for (std::size_t port = 0; port < 3; ++port) ports_[port]->arrive(frame_of(8, 2 + 2 * port, kOwnType, 2));
  pump();
  for (std::size_t port = 0; port < 3; ++port) {
    const auto sent = ports_[port]->fetch();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].size(), 15u);
    EXPECT_EQ(MacAddress::read(&sent[0][6]).number, 2 + 2 * port);
    EXPECT_EQ(sent[0][14], std::byte{0x77});
  }
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(PipelineTest, WhatAHandlerDropsIsForwardedNowhere) {
  ports_[0]->arrive(frame_of(8, 2, kOwnType, 9));
  pump();
  EXPECT_THAT(ports_[1]->fetch(), IsEmpty());
  EXPECT_EQ(pipeline_->counters(0).dropped.get(), 1u);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(PipelineTest, CountsFlawsByReason) {
  ports_[0]->arrive(Bytes(13));
  ports_[0]->arrive(Bytes(1600));
  ports_[0]->arrive(frame_of(8, 0x0100'0000'0001));
  ports_[0]->arrive(frame_of(8, 2, kIpv4Type));  // no IPv4 in it: forwarded all the same
  pump();
  const auto& flaws = pipeline_->counters(0).flaws;
  EXPECT_EQ(flaws[static_cast<std::size_t>(Flaw::kRunt)].get(), 1u);
  EXPECT_EQ(flaws[static_cast<std::size_t>(Flaw::kOversize)].get(), 1u);
  EXPECT_EQ(flaws[static_cast<std::size_t>(Flaw::kBadSource)].get(), 1u);
  EXPECT_EQ(flaws[static_cast<std::size_t>(Flaw::kIpHeader)].get(), 1u);
  EXPECT_EQ(ports_[1]->fetch().size(), 1u);
  EXPECT_EQ(pipeline_->counters(0).received.get(), 4u);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(PipelineTest, APortThatGoesDownIsForgottenAndTold) {
  ports_[2]->arrive(frame_of(2, 4));
  pump();
  ports_[1]->fetch();
  ports_[2]->set_up(false);
  now_ += 2 * kMillisecond;
  pump();
  EXPECT_THAT(sample_->ports_seen, ElementsAre(std::pair<link::PortNumber, bool>(2, false)));
  ports_[0]->arrive(frame_of(4, 6));
  pump();
  EXPECT_EQ(ports_[1]->fetch().size(), 1u) << "flooded";
  EXPECT_GE(sample_->times, 1);
}

class NarrowPipelineTest : public PipelineTest {
 protected:
  NarrowPipelineTest() : PipelineTest(/*queue_max=*/2) {}
};

TEST_F(NarrowPipelineTest, AFullPortHoldsUpNobodyAndKeepsOrder) {
  for (unsigned mark = 0; mark < 5; ++mark) ports_[0]->arrive(frame_of(8, 2, 0x1234, mark));
  pump();
  auto first = ports_[1]->fetch();
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(ports_[2]->fetch().size(), 2u);
  pump();
  auto second = ports_[1]->fetch();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0][14], std::byte{2});
  pump();
  EXPECT_EQ(ports_[1]->fetch().size(), 1u);
}

TEST_F(NarrowPipelineTest, ABacklogHasABound) {
  for (std::size_t i = 0; i < Outbox::kBacklogMost + 100; ++i) ports_[0]->arrive(frame_of(8, 2));
  for (std::size_t i = 0; i < Outbox::kBacklogMost; ++i) pump();
  EXPECT_GT(pipeline_->outbox().dropped(1), 90u);
  EXPECT_LE(pool_.in_use(), Outbox::kBacklogMost);
}

// Two threads: what the handler wants on the other one goes there, everything else is forwarded here.
TEST(Handover, GoesToTheThreadThatOwnsTheState) {
  link::MemoryPool pool;
  MacTable addresses;
  link::MemoryPort port0(pool, 0), port1(pool, 1), to_other(pool, 7);
  std::vector<std::unique_ptr<ProtocolHandler>> handlers;
  handlers.push_back(std::make_unique<Sample>());
  PipelineOptions options;
  options.threads = 2;
  Pipeline pipeline(pool, {{&port0, &port1}, {0, 1}, {nullptr, &to_other}, nullptr}, addresses, std::move(handlers),
                    options);
  port0.arrive(frame_of(8, 2, kOwnType, 2));
  port0.arrive(frame_of(8, 2));
  pipeline.pump(kSecond);
  EXPECT_EQ(to_other.fetch().size(), 1u);
  EXPECT_EQ(port1.fetch().size(), 1u);
  EXPECT_EQ(pipeline.counters(0).handed_over.get(), 1u);
}

// The other thread stands still. Frames for it are lost, and counted at the port they came from, apart from those that
// it gets. Frames that it should only read are forwarded all the same.
TEST(Handover, CountsWhatTheOtherThreadHasNoRoomFor) {
  constexpr std::size_t kFrames = Outbox::kBacklogMost + 96;
  for (const bool reads : {false, true}) {
    link::MemoryPool pool;
    MacTable addresses;
    link::MemoryPort port0(pool, 0), port1(pool, 1), to_other(pool, 7, 0);
    auto sample = std::make_unique<Sample>();
    sample->reads = reads;
    std::vector<std::unique_ptr<ProtocolHandler>> handlers;
    handlers.push_back(std::move(sample));
    PipelineOptions options;
    options.threads = 2;
    Pipeline pipeline(pool, {{&port0, &port1}, {0, 1}, {nullptr, &to_other}, nullptr}, addresses, std::move(handlers),
                      options);
    for (std::size_t i = 0; i < kFrames; ++i) port0.arrive(frame_of(8, 2, kOwnType, 2));
    while (pipeline.pump(kSecond) > 0) {
    }
    const PortCounters& counters = pipeline.counters(0);
    EXPECT_EQ(counters.received.get(), kFrames);
    EXPECT_EQ(counters.dropped_handover.get(), reads ? 0u : 96u);
    EXPECT_EQ(counters.unread_handover.get(), reads ? 96u : 0u);
    EXPECT_EQ(counters.handed_over.get(), reads ? 0u : Outbox::kBacklogMost);
    EXPECT_EQ(counters.flooded.get(), reads ? kFrames : 0u);
    EXPECT_EQ(port1.fetch().size(), reads ? kFrames : 0u);
    EXPECT_EQ(pool.in_use(), Outbox::kBacklogMost) << "what still waits for the other thread";
  }
}

}  // namespace
}  // namespace netfold::switching

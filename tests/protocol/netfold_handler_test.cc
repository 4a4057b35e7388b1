// Netfold's protocol handler at the ports of a switch, frame by frame: what workers behind tags, buffers that others
// read, ports that do not fold and jobs that go must not change.
#include "switch/protocols/netfold/netfold_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "switch/ethernet/memory_switch.h"

namespace netfold::switching {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kHandlerIp = 0x0a00'0001, kWorkerIp = 0x0a00'0010;
constexpr std::uint16_t kSwitchUdp = 7172, kWorkerUdp = 40000;
constexpr std::uint32_t kHostIp = 0x0a00'0030;
constexpr std::uint16_t kHostUdp = 50000;
constexpr link::PortNumber kPorts = 3;
constexpr MacAddress kHandlerMac{0x0200'0000'0001}, kWorkerMac{0x0200'0000'0010};

class NetfoldHandlerTest : public ::testing::Test {
 protected:
  NetfoldHandlerTest() {
    Admission admission;
    admission.lease.job = 1;
    admission.lease.epoch = 5;
    admission.lease.world = 2;
    admission.lease.slots = 4;
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      admission.workers.push_back({kWorkerIp + rank, static_cast<std::uint16_t>(kWorkerUdp + rank)});
    }
    admission.host = link::Address{kHostIp, kHostUdp};
    switch_.data_addresses().set(1, kHostIp);
    job_ = std::make_unique<FrameJob>(admission, 0);
    handler_->place(1, job_.get(), pool_);
  }

  Bytes contribution(std::uint16_t rank, std::uint32_t chunk, std::vector<float> elements) const {
    wire::Header header = job_->admission.lease.header(wire::Kind::kContribution, rank, chunk);
    header.format = numbers::Format::kFp32;
    header.count = static_cast<std::uint16_t>(elements.size());
    const wire::HeaderBytes head = wire::emit(header);
    const auto payload = std::as_bytes(std::span(elements));
    Bytes frame(kUdpFrameBytes);
    write_udp_headers({kHandlerMac,
                       {kWorkerMac.number + rank},
                       kHandlerIp,
                       kWorkerIp + rank,
                       kSwitchUdp,
                       static_cast<std::uint16_t>(kWorkerUdp + rank),
                       head.size() + payload.size()},
                      frame.data());
    frame.insert(frame.end(), head.begin(), head.end());
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
  }
  // "Tell me when all chunks before this one are folded", from a host at port 2.
  Bytes question(std::uint32_t ip, std::uint32_t chunk) const {
    const wire::ShortPacket packet(job_->admission.lease, wire::Kind::kAwait, wire::kSwitchWorker, chunk);
    Bytes frame(kUdpFrameBytes);
    write_udp_headers(
        {kHandlerMac, {kWorkerMac.number + 2}, kHandlerIp, ip, kSwitchUdp, kHostUdp, packet.bytes().size()},
        frame.data());
    frame.insert(frame.end(), packet.bytes().begin(), packet.bytes().end());
    frame.resize(60);  // as Ethernet pads it
    return frame;
  }
  static Bytes addressed_to_host(Bytes frame) {
    write_u32(&frame[kEthernetBytes + 16], kHostIp);
    write_u16(&frame[24], 0);
    write_u16(&frame[24], static_cast<std::uint16_t>(~checksum({&frame[14], kIpv4Bytes})));
    return frame;
  }
  void expect_signal(Bytes frame, std::uint32_t chunk) const {
    ParsedFrame parsed;
    const link::Frame whole{nullptr, frame.data(), static_cast<std::uint32_t>(frame.size()), 0, false, false};
    ASSERT_EQ(parse(whole, {}, parsed), Flaw::kNone);
    EXPECT_EQ(parsed.to.number, kWorkerMac.number + 2);
    EXPECT_EQ(parsed.ip.from, kHandlerIp);
    EXPECT_EQ(parsed.ip.to, kHostIp);
    EXPECT_EQ(parsed.udp.to, kHostUdp);
    wire::Packet packet;
    ASSERT_EQ(wire::parse(parsed.payload(), packet), wire::ParseError::kNone);
    EXPECT_EQ(packet.header.kind, wire::Kind::kComplete);
    EXPECT_EQ(packet.header.chunk, chunk);
    EXPECT_TRUE(wire::is_of_lease(job_->admission.lease, packet, parsed.payload()));
  }
  static Bytes tagged(Bytes frame, unsigned vlan) {
    const std::byte tag[]{std::byte{0x81}, std::byte{0}, static_cast<std::byte>(vlan >> 8),
                          static_cast<std::byte>(vlan)};
    frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    return frame;
  }
  void arrive(link::PortNumber port, const Bytes& frame) {
    switch_.port(port).arrive(frame);
    switch_.settle(now_ += kMicrosecond);
  }
  // The elements of the one result that left by `port`.
  std::vector<float> result_at(link::PortNumber port, unsigned vlan = 0) {
    auto sent = switch_.port(port).fetch();
    if (sent.size() != 1) return {};
    ParsedFrame parsed;
    const link::Frame frame{nullptr, sent[0].data(), static_cast<std::uint32_t>(sent[0].size()), 0, false, false};
    EXPECT_EQ(parse(frame, {}, parsed), Flaw::kNone);
    EXPECT_EQ(parsed.from, kHandlerMac);
    EXPECT_EQ(parsed.to.number, kWorkerMac.number + port);
    EXPECT_EQ(parsed.ip.to, kWorkerIp + port);
    EXPECT_EQ(parsed.udp.to, kWorkerUdp + port);
    EXPECT_EQ(parsed.vlan, vlan);
    wire::Packet packet;
    EXPECT_EQ(wire::parse(parsed.payload(), packet), wire::ParseError::kNone);
    EXPECT_EQ(packet.header.kind, wire::Kind::kResult);
    std::vector<float> elements(packet.payload.size() / sizeof(float));
    std::memcpy(elements.data(), packet.payload.data(), packet.payload.size());
    return elements;
  }

  std::unique_ptr<FrameJob> job_;
  int mismatches_ = 0;
  MemorySwitch switch_{kPorts,
                       {.netfold = NetfoldOptions{.ip = kHandlerIp,
                                                  .first_port = kSwitchUdp,
                                                  .jobs_max = 8,
                                                  .on_mismatch = [this](auto, auto, auto, auto) { ++mismatches_; }}}};
  NetfoldHandler* handler_ = switch_.thread().netfold;
  link::MemoryPool& pool_ = switch_.pool();
  Nanoseconds now_ = kSecond;
};

TEST_F(NetfoldHandlerTest, WorkersBehindTagsAreAnsweredBehindTheirTags) {
  arrive(0, contribution(0, 0, {1, 2}));
  arrive(1, tagged(contribution(1, 0, {10, 20}), 42));
  EXPECT_EQ(result_at(0), (std::vector<float>{11, 22}));
  EXPECT_EQ(result_at(1, 42), (std::vector<float>{11, 22}));
  EXPECT_EQ(pool_.in_use(), 1u) << "only the kept result";
}

TEST_F(NetfoldHandlerTest, ABufferThatOthersReadIsLeftAsItIs) {
  const Bytes frame = contribution(0, 0, {1});
  link::Frame shared = pool_.allocate();
  std::copy(frame.begin(), frame.end(), shared.bytes);
  shared.size_bytes = static_cast<std::uint32_t>(frame.size());
  shared.port = 0;
  shared.is_shared = true;
  pool_.retain(shared.buffer, 1);  // the other reader
  ParsedFrame parsed;
  ASSERT_EQ(parse(shared, {}, parsed), Flaw::kNone);
  EXPECT_EQ(handler_->offer(parsed, switch_.thread().pipeline->outbox()), HandlerVerdict::kTaken);
  EXPECT_TRUE(std::equal(frame.begin(), frame.end(), shared.bytes));
  arrive(1, contribution(1, 0, {2}));
  EXPECT_EQ(result_at(0), std::vector<float>{3});
  EXPECT_TRUE(pool_.is_sole(shared.buffer)) << "the handler gave its own reference back";
  pool_.release({&shared.buffer, 1});
}

TEST_F(NetfoldHandlerTest, WhereAPortDoesNotFoldGradientsAreForwarded) {
  switch_.settings().folding_ports = 0b101;
  const Bytes frame = contribution(1, 0, {2});
  arrive(1, frame);
  EXPECT_THAT(switch_.port(0).fetch(), ::testing::ElementsAre(frame));
  EXPECT_EQ(job_->counters.contributions.get(), 0u);
  switch_.settings().folding_ports = 0b111;
  arrive(1, frame);
  EXPECT_EQ(job_->counters.contributions.get(), 1u);
  const Registers registers = registers_of(switch_.settings(), kPorts);
  EXPECT_EQ(registers.agg_port_cfg, 3u << 27 | 7u);
  EXPECT_EQ(registers.agg_mode, 0u);
}

// dpdk-switch, section 4.2.1: gradients are addressed to the host, which gets none of them but hears when they are
// folded.
TEST_F(NetfoldHandlerTest, TheHostsQuestionBecomesTheSignal) {
  switch_.settings().folding_ports = 0b011;  // the host's need not fold
  const auto ask = [&](std::uint32_t chunk) { return question(kHostIp, chunk); };
  arrive(2, ask(2));
  EXPECT_EQ(pool_.in_use(), 1u) << "kept until then";
  arrive(2, ask(1));
  EXPECT_EQ(pool_.in_use(), 1u) << "only the last question";
  arrive(0, addressed_to_host(contribution(0, 0, {1})));
  EXPECT_THAT(switch_.port(2).fetch(), ::testing::IsEmpty()) << "no gradient reaches the host";
  arrive(1, addressed_to_host(contribution(1, 0, {2})));
  EXPECT_EQ(pool_.in_use(), 1u) << "the kept result";
  const auto signals = switch_.port(2).fetch();
  ASSERT_EQ(signals.size(), 1u);
  expect_signal(signals[0], 1);
  arrive(2, ask(1));
  const auto again = switch_.port(2).fetch();
  ASSERT_EQ(again.size(), 1u);
  expect_signal(again[0], 1);
  EXPECT_EQ(job_->counters.signals.get(), 2u);
  EXPECT_EQ(switch_.port(0).fetch().size(), 1u);
  arrive(2, ask(4));
  handler_->place(1, nullptr, pool_);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(NetfoldHandlerTest, NobodyElseAsksInTheHostsName) {
  arrive(2, question(kHostIp + 1, 1));
  EXPECT_EQ(handler_->drops(DropReason::kStranger), 1u);
  switch_.data_addresses().set(1, 0);
  const Bytes stray = addressed_to_host(contribution(0, 0, {1}));
  arrive(0, stray);
  EXPECT_THAT(switch_.port(2).fetch(), ::testing::ElementsAre(stray)) << "a host without a job: plain traffic";
}

TEST_F(NetfoldHandlerTest, AJobThatGoesGivesItsBuffersBack) {
  arrive(0, contribution(0, 0, {1}));
  arrive(1, contribution(1, 0, {2}));
  arrive(0, contribution(0, 4, {1}));
  EXPECT_EQ(pool_.in_use(), 2u) << "a kept result, a contribution that waits";
  handler_->place(1, nullptr, pool_);
  EXPECT_EQ(pool_.in_use(), 0u);
  arrive(0, contribution(0, 8, {1}));
  EXPECT_EQ(handler_->drops(DropReason::kUnknownJob), 1u);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(NetfoldHandlerTest, StrangersAndDuplicatesLeaveNothing) {
  arrive(0, contribution(0, 0, {1}));
  Bytes duplicate = contribution(0, 0, {1000});
  arrive(0, duplicate);
  Bytes forged = contribution(1, 0, {1000});
  forged[kEthernetBytes + 15] ^= std::byte{64};  // another sender's address; its checksum is mended
  write_u16(&forged[24], 0);
  write_u16(&forged[24], static_cast<std::uint16_t>(~checksum({&forged[14], kIpv4Bytes})));
  arrive(1, forged);
  EXPECT_EQ(handler_->drops(DropReason::kDuplicate), 1u);
  EXPECT_EQ(handler_->drops(DropReason::kStranger), 1u);
  EXPECT_EQ(pool_.in_use(), 1u);
  arrive(1, contribution(1, 0, {2}));
  EXPECT_EQ(result_at(1), std::vector<float>{3});
  EXPECT_EQ(mismatches_, 0);
}

}  // namespace
}  // namespace netfold::switching

// The time-out of RoCE's requester: it goes by full queues also when these are empty for a moment, and not by workers
// that compute.
#include "group/via_roce/roce_sender.h"

#include <gtest/gtest.h>

namespace netfold::group {
namespace {

namespace roce = wire::roce;

constexpr std::uint32_t kPackets = 64;  // as many answers as make a period

class Requester : public ::testing::Test {
 protected:
  void post() { sender_.post(number_++, message_, now_); }
  // Sends all that may go; returns how many packets.
  std::uint64_t send() {
    std::uint64_t sent = 0;
    while (sender_.next(frame_, now_) > 0) ++sent;
    return sent;
  }
  void acknowledge(std::uint32_t psn) {
    sender_.on_answer({.opcode = roce::Opcode::kAcknowledge, .psn = psn, .syndrome = roce::kAcknowledged}, now_);
  }
  // A message whose packets are answered after these round trips, packet by packet.
  template <class RoundTrip>
  void exchange(RoundTrip round_trip) {
    const std::uint32_t first = number_ * kPackets;
    post();
    send();
    const Nanoseconds sent_at = now_;
    for (std::uint32_t packet = 0; packet < kPackets; ++packet) {
      now_ = sent_at + round_trip(packet);
      acknowledge(first + packet);
    }
    ASSERT_TRUE(sender_.is_idle());
  }
  Nanoseconds timeout() {
    post();
    send();
    const Nanoseconds timeout = sender_.deadline() - now_;
    for (std::uint32_t packet = 0; packet < kPackets; ++packet) acknowledge((number_ - 1) * kPackets + packet);
    return timeout;
  }

  std::vector<std::byte> message_ = std::vector<std::byte>(kPackets * roce::kPathMtu);
  std::vector<std::byte> frame_ = std::vector<std::byte>(RoceSender::kFrameBytesMax);
  RoceSender sender_{{}, {}};
  std::uint32_t number_ = 0;
  Nanoseconds now_ = kSecond;
};

TEST_F(Requester, WaitsForAQueueThatWasFullAMomentAgo) {
  EXPECT_EQ(timeout(), RoceSenderOptions{}.timeout_start);
  const auto behind_a_queue = [](std::uint32_t) { return 20 * kMillisecond; };
  for (int message = 0; message < 3; ++message) exchange(behind_a_queue);
  // The queue empties.
  exchange([](std::uint32_t packet) { return 20 * kMillisecond - packet * (19 * kMillisecond / kPackets); });
  EXPECT_EQ(timeout(), 60 * kMillisecond);
}

TEST_F(Requester, ForgetsAQueueThatStaysEmpty) {
  for (int message = 0; message < 3; ++message) exchange([](std::uint32_t) { return 20 * kMillisecond; });
  for (int message = 0; message < 4; ++message) exchange([](std::uint32_t) { return kMillisecond; });
  EXPECT_EQ(timeout(), RoceSenderOptions{}.timeout_min);
}

// A part of the packets waits until another worker has computed.
TEST_F(Requester, DoesNotTakeAWorkerThatComputesForAQueue) {
  for (int message = 0; message < 8; ++message) {
    exchange([](std::uint32_t packet) { return packet < kPackets / 2 ? 2 * kMillisecond : 100 * kMillisecond; });
  }
  EXPECT_EQ(timeout(), 6 * kMillisecond);
}

}  // namespace
}  // namespace netfold::group

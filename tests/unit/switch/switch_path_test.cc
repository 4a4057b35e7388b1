#include "switch/switch_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "wire/packet.h"

namespace netfold::switching {
namespace {

constexpr std::size_t kEchoes = 3000;
constexpr link::Address kEchoSender{0, 1};

wire::Lease echo_lease() {
  wire::Lease lease;
  lease.job = 0;
  lease.epoch = 1;
  lease.world = 2;
  lease.slots = 1024;
  lease.payload_bytes = 1456;
  return lease;
}

// Many echoes wait in it, and it keeps the headers of what is sent.
class EchoLink final : public link::Link {
 public:
  EchoLink() {
    for (std::uint32_t chunk = 0; chunk < kEchoes; ++chunk) {
      echoes_.push_back(wire::emit(echo_lease().header(wire::Kind::kEcho, 0, chunk)));
    }
  }

  std::size_t send(std::span<const link::Outgoing> batch) override {
    for (const link::Outgoing& out : batch) {
      wire::Packet packet;
      EXPECT_EQ(wire::parse(out.head, packet), wire::ParseError::kNone);
      returned.push_back(packet.header);
    }
    return batch.size();
  }
  std::span<const link::Incoming> receive(std::size_t most) override {
    incoming_.clear();
    for (; received_ < kEchoes && incoming_.size() < most; ++received_) {
      incoming_.push_back({kEchoSender, echoes_[received_]});
    }
    return incoming_;
  }
  int descriptor() const override { return -1; }
  link::Address local_address() const override { return {}; }
  const link::LinkStats& stats() const override { return stats_; }

  std::vector<wire::Header> returned;

 private:
  std::vector<std::array<std::byte, wire::kHeaderBytes>> echoes_;
  std::size_t received_ = 0;
  std::vector<link::Incoming> incoming_;
  link::LinkStats stats_;
};

// A worker takes it for the time at which its echo arrived.
TEST(SwitchPath, WritesTheTimeOfItsBatchIntoAnEcho) {
  auto owned = std::make_unique<EchoLink>();
  EchoLink& link = *owned;
  SwitchPath path(std::move(owned), 1, [](auto, auto, auto, const auto&) {});
  ShardJob job({echo_lease(), {kEchoSender, {0, 2}}, {}}, 0);
  path.place(0, &job);
  Nanoseconds now = kSecond;
  std::size_t answered = 0;
  int batches = 0;
  while (path.pump(now)) {
    ++batches;
    ASSERT_GT(link.returned.size(), answered);
    for (; answered < link.returned.size(); ++answered) {
      EXPECT_EQ(link.returned[answered].kind, wire::Kind::kEcho);
      EXPECT_EQ(link.returned[answered].count, wire::echo_time(now));
    }
    now += kMillisecond;
  }
  EXPECT_EQ(answered, kEchoes);
  EXPECT_GT(batches, 1);
}

}  // namespace
}  // namespace netfold::switching

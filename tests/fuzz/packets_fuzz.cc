// Bytes thrown at the switch and at the workers while a job folds: random ones, packets of the job with bits flipped,
// cut or lengthened, well-formed packets of a stranger who guessed job, epoch and rank. Nothing may crash or leak (the
// sanitizers watch), every drop is counted, and no sum changes.
//
// NETFOLD_FUZZ_PACKETS sets how many (default 300,000), NETFOLD_SEED which.
#include <gtest/gtest.h>

#include "fuzz/right_sums.h"

namespace netfold::tests {
namespace {

constexpr std::uint16_t kStrangerPort = 5000;
constexpr std::size_t kPacketsARound = 500;

class Stranger {
 public:
  Stranger(World& world, std::uint64_t seed) : world_(world), link_(world.network().open(kStrangerPort)), prng_(seed) {}

  void attack(std::size_t packets) {
    for (std::size_t i = 0; i < packets; ++i) {
      const std::vector<std::byte> bytes = make();
      const auto port = static_cast<std::uint16_t>(prng_.chance(0.7) ? 1 : 1000 + prng_.below(kWorld));
      const link::Outgoing datagram{{0, port}, bytes, {}, {}};
      link_->send(std::span(&datagram, 1));
    }
    link_->receive(1u << 20);  // answers that no switch sends
  }
  std::uint64_t answers() const { return link_->stats().received_packets; }

 private:
  std::vector<std::byte> make() {
    if (prng_.chance(0.3)) return random_bytes(prng_.below(200));
    std::vector<std::byte> bytes = plausible();
    if (prng_.chance(0.3)) return bytes;  // perfect, but for where it comes from
    switch (prng_.below(3)) {
      case 0:
        for (std::uint64_t flips = 1 + prng_.below(8); flips > 0; --flips) {
          bytes[prng_.below(bytes.size())] ^= static_cast<std::byte>(1u << prng_.below(8));
        }
        break;
      case 1: bytes.resize(prng_.below(bytes.size() + 1)); break;
      default: {
        const auto more = random_bytes(1 + prng_.below(300));
        bytes.insert(bytes.end(), more.begin(), more.end());
      }
    }
    return bytes;
  }

  std::vector<std::byte> random_bytes(std::size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng_.next());
    return bytes;
  }

  std::vector<std::byte> plausible() {
    const wire::Lease& lease = world_.lease();
    wire::Header header;
    header.kind = static_cast<wire::Kind>(prng_.below(12));
    header.owner = static_cast<std::uint16_t>(prng_.below(kWorld + 1));
    header.job = lease.job;
    header.epoch = lease.epoch;
    header.worker = static_cast<std::uint16_t>(prng_.chance(0.9) ? prng_.below(kWorld) : prng_.next());
    header.chunk = static_cast<std::uint32_t>(prng_.below(4000));
    header.slot = lease.slot_of(header.chunk);
    std::vector<std::byte> payload;
    if (wire::is_contribution(header.kind) || header.kind == wire::Kind::kResult) {
      header.format = static_cast<numbers::Format>(1 + prng_.below(5));
      header.count = static_cast<std::uint16_t>(1 + prng_.below(64));
      payload = random_bytes(numbers::encoded_bytes(lease.wire_format(header.format), header.count));
      if (prng_.chance(0.2)) header.flags |= wire::kLast;
      if (prng_.chance(0.2)) header.flags |= wire::kAverage;
    }
    if (header.kind == wire::Kind::kCopy) {
      header.format = numbers::Format::kNone;
      header.flags &= wire::kLast;
      if (prng_.chance(0.5)) payload.clear();
      if (!payload.empty()) header.count = static_cast<std::uint16_t>(payload.size());
    }
    const wire::HeaderBytes head = wire::emit(header);
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }

  World& world_;
  std::unique_ptr<link::Link> link_;
  Prng prng_;
};

// Tagged or not, through the sockets' switch or the frame switch.
class PacketsFuzz : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(PacketsFuzz, ChangeNoSum) {
  const std::uint64_t packets = from_environment("NETFOLD_FUZZ_PACKETS", 300'000);
  const std::uint64_t seed = random_seed();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
  World world({.world = kWorld,
               .tagged = std::get<0>(GetParam()),
               .faults = {.loss = 0.02, .duplicate = 0.02},
               .seed = seed,
               .frames = std::get<1>(GetParam())});
  Stranger stranger(world, seed);
  Prng prng(seed);
  for (std::uint64_t sent = 0; sent < packets / 4; sent += kPacketsARound) {
    stranger.attack(kPacketsARound);
    expect_a_right_sum(world, prng);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(stranger.answers(), 0u) << "the switch answers only known senders";
  EXPECT_TRUE(world.mismatches().empty()) << world.mismatches()[0];
  EXPECT_GT(world.drops(switching::DropReason::kStranger), 0u);
  EXPECT_GT(world.drops(switching::DropReason::kUnknownJob), 0u);
  EXPECT_GT(world.drops(switching::DropReason::kVersion), 0u);
}

INSTANTIATE_TEST_SUITE_P(PlainAndTagged, PacketsFuzz, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

// A worker of the job itself that goes mad: its own sums may be wrong or its job may fail, but nothing crashes.
class MadWorker : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Switches, MadWorker, ::testing::Bool());

TEST_P(MadWorker, CrashesNothing) {
  const std::uint64_t packets = from_environment("NETFOLD_FUZZ_PACKETS", 300'000) / 4;
  const std::uint64_t seed = random_seed();
  World world({.world = kWorld, .seed = seed, .frames = GetParam()});
  Prng prng(seed);
  const wire::Lease& lease = world.lease();
  for (std::uint64_t i = 0; i < packets; ++i) {
    wire::Header header{.kind = static_cast<wire::Kind>(prng.below(5)),
                        .format = static_cast<numbers::Format>(prng.below(6)),
                        .flags = static_cast<std::uint8_t>(prng.below(8)),
                        .job = lease.job,
                        .worker = static_cast<std::uint16_t>(prng.below(kWorld)),
                        .epoch = lease.epoch,
                        .count = static_cast<std::uint16_t>(prng.below(100)),
                        .chunk = static_cast<std::uint32_t>(prng.below(2 * lease.slots))};
    header.slot = prng.chance(0.95) ? lease.slot_of(header.chunk) : static_cast<std::uint16_t>(prng.next());
    const wire::HeaderBytes head = wire::emit(header);
    const bool fits = header.format != numbers::Format::kNone && prng.chance(0.8);
    std::vector<std::byte> body(fits ? numbers::encoded_bytes(lease.wire_format(header.format), header.count)
                                     : prng.below(400));
    for (std::byte& byte : body) byte = static_cast<std::byte>(prng.next());
    const link::Outgoing datagram{{0, 1}, head, body, {}};
    world.link_of(header.worker).send(std::span(&datagram, 1));
    if (i % 100 != 0) continue;
    world.run(kMillisecond);
    world.pump_switch();
    world.job(0).has_failed = false;  // contradictions end a job at once; here they must not end the test
  }
  std::uint64_t dropped = 0;
  for (std::size_t reason = 0; reason < static_cast<std::size_t>(switching::DropReason::kCount); ++reason) {
    dropped += world.drops(static_cast<switching::DropReason>(reason));
  }
  EXPECT_GT(dropped, packets / 4);
}

}  // namespace
}  // namespace netfold::tests

// Bytes thrown at the switch of frames and at RoCE workers while a job folds: random ones, frames of the job with bits
// flipped, cut or lengthened, frames whose ICRC was made right again after that. Nothing may crash or leak (the
// sanitizers watch), and no sum changes.
//
// NETFOLD_FUZZ_FRAMES sets how many (default 100,000), NETFOLD_SEED which.
#include <gtest/gtest.h>

#include "protocol/roce_world.h"
#include "support/random_seed.h"

namespace netfold::tests {
namespace {

namespace roce = wire::roce;

constexpr std::uint16_t kWorld = 3;
constexpr std::size_t kFramesARound = 200;

// Frames as rank 0 might send them: plausible, but of another job or epoch, so that frames that pass do no harm.
std::vector<std::byte> plausible(RoceWorld& world, Prng& prng) {
  const group::QpPairInfo self = world.channel(0).card();
  group::QpInfo peer = world.channel(1).card().receiving;
  if (prng.chance(0.5)) peer.queue_pair = static_cast<std::uint32_t>(prng.below(1 << 24));
  roce::AggregationHeader header;
  header.format = static_cast<numbers::Format>(prng.below(5));
  header.job = static_cast<std::uint16_t>(prng.chance(0.5) ? 0 : prng.below(40));
  header.epoch = 0;  // before the job's
  header.rank = static_cast<std::uint16_t>(prng.below(kWorld + 1));
  header.message = static_cast<std::uint32_t>(prng.below(6));
  header.length_bytes = static_cast<std::uint32_t>(1008 + 4 * prng.below(2000));
  return message_frame(self.sending, peer, header, 1 + prng.below(3));
}

// With a right ICRC again, and not of a later epoch: a sender that forges the epoch can replace a job, because RoCE has
// no secrets. A flipped bit can make a frame one of the other version, which may be too short for that one's headers:
// it is thrown as it is.
void reseal(std::vector<std::byte>& frame, roce::Version version) {
  if (roce::version_of(std::span(frame).subspan(roce::kEthernetBytes)) != version) return;
  const std::size_t epoch_at =
      roce::kEthernetBytes + roce::network_bytes(version) + roce::kBthBytes + roce::kRethBytes + 6;
  if (frame.size() >= epoch_at + 2) frame[epoch_at] = frame[epoch_at + 1] = std::byte{0};
  roce::seal(std::span(frame).subspan(roce::kEthernetBytes));
}

std::vector<std::byte> hostile(RoceWorld& world, Prng& prng) {
  if (prng.chance(0.2)) {
    std::vector<std::byte> bytes(prng.below(200));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
    return bytes;
  }
  std::vector<std::byte> bytes = plausible(world, prng);
  switch (prng.below(4)) {
    case 0: break;
    case 1: bytes.resize(prng.below(bytes.size() + 1)); break;
    case 2: bytes.resize(std::min<std::size_t>(bytes.size() + prng.below(300), 2000)); break;
    default: {
      // Addresses are not forged: a port that claims a worker's address gets its frames, as from any learning switch.
      constexpr std::size_t kTypeAt = 12;
      for (std::uint64_t flips = 1 + prng.below(6); flips > 0; --flips) {
        bytes[kTypeAt + prng.below(bytes.size() - kTypeAt)] ^= static_cast<std::byte>(1u << prng.below(8));
      }
      if (prng.chance(0.5)) reseal(bytes, world.channel(0).card().sending.version);
    }
  }
  return bytes;
}

void expect_right_sums(roce::Version version, std::uint64_t frames, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed << " version " << static_cast<int>(version));
  Prng prng(seed);
  RoceWorld world(
      {.world = kWorld, .version = version, .faults = {.loss = 0.01}, .roce = {.idle_max = kSecond}, .seed = seed});
  for (std::uint64_t sent = 0; sent < frames; sent += kFramesARound) {
    std::vector<std::vector<float>> tensors(kWorld, std::vector<float>(3000));
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      for (std::size_t i = 0; i < tensors[rank].size(); ++i) tensors[rank][i] = static_cast<float>(rank + i % 100);
      world.submit(rank, {tensors[rank].data(), tensors[rank].data(), tensors[rank].size(), numbers::ElementType::kFp32,
                          numbers::Format::kFp32, false});
    }
    for (std::size_t i = 0; i < kFramesARound; ++i) {
      const std::vector<std::byte> bytes = hostile(world, prng);
      if (prng.chance(0.7)) {
        world.port(0).arrive(bytes);  // where rank 0 sits, whose address most of them bear
      } else {
        world.endpoint(prng.below(kWorld)).on_frame(bytes, world.time());
      }
      if (i % 20 == 0) world.run(10 * kMicrosecond);
    }
    ASSERT_TRUE(world.run(1000 * kSecond)) << "after " << sent << " frames";
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      for (std::size_t i = 0; i < tensors[rank].size(); ++i) {
        ASSERT_EQ(tensors[rank][i], static_cast<float>(3 + 3 * (i % 100))) << "after " << sent << " frames";
      }
    }
  }
  std::uint64_t dropped = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(switching::RoceVerdict::kCount); ++i) {
    if (switching::is_drop(static_cast<switching::RoceVerdict>(i))) {
      dropped += world.handler().count(static_cast<switching::RoceVerdict>(i));
    }
  }
  EXPECT_GT(dropped, frames / 10);
}

TEST(RoceFuzz, HostileFramesChangeNoSum) {
  const std::uint64_t frames = from_environment("NETFOLD_FUZZ_FRAMES", 100'000);
  const std::uint64_t seed = random_seed();
  expect_right_sums(roce::Version::kV1, frames / 2, seed);
  expect_right_sums(roce::Version::kV2, frames / 2, seed);
}

}  // namespace
}  // namespace netfold::tests

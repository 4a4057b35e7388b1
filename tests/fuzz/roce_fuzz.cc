// Bytes thrown at the switch of frames and at RoCE workers while a job folds: random ones, frames of the job with bits
// flipped, cut or lengthened, frames whose ICRC was made right again after that. Frames of one-way messages are full or
// short by chance. Nothing may crash or leak (the sanitizers watch), and no result changes.
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
  header.way = static_cast<roce::Way>(prng.below(3));
  if (header.way != roce::Way::kToAll) header.other = static_cast<std::uint8_t>(prng.below(kWorld + 1));
  return message_frame(self.sending, peer, header, 1 + prng.below(3), std::byte{0}, prng.chance(0.3));
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

// A tensor of each rank, and collectives over it: an all-reduce, a reduce-scatter, and a broadcast of the last rank's.
class Collectives {
 public:
  explicit Collectives(std::size_t part) : part_(part) {
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      auto& tensor = in_.emplace_back(part * kWorld);
      for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<float>(rank + i % 100);
      sums_.emplace_back(part * kWorld);
      parts_.emplace_back(part);
      copies_.emplace_back(part * kWorld);
    }
  }

  void submit(RoceWorld& world) {
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      const auto submit = [&](schedule::Collective collective, std::vector<float>& out, std::size_t count) {
        group::CollectiveRequest request{in_[rank].data(), out.data(), count};
        request.collective = collective;
        request.root = kWorld - 1;
        world.submit(rank, request);
      };
      submit(schedule::Collective::kAllReduce, sums_[rank], part_ * kWorld);
      submit(schedule::Collective::kReduceScatter, parts_[rank], part_);
      submit(schedule::Collective::kBroadcast, copies_[rank], part_ * kWorld);
    }
  }

  void expect_right() const {
    std::vector<float> sum(part_ * kWorld);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<float>(3 + 3 * (i % 100));
    for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
      const auto part = sum.begin() + static_cast<std::ptrdiff_t>(rank * part_);
      ASSERT_EQ(sums_[rank], sum);
      ASSERT_EQ(parts_[rank], std::vector<float>(part, part + static_cast<std::ptrdiff_t>(part_)));
      ASSERT_EQ(copies_[rank], in_[kWorld - 1]);
    }
  }

 private:
  std::size_t part_;
  std::vector<std::vector<float>> in_, sums_, parts_, copies_;
};

void expect_right_sums(roce::Version version, std::uint64_t frames, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed << " version " << static_cast<int>(version));
  Prng prng(seed);
  RoceWorld world({.world = kWorld,
                   .version = version,
                   .one_way = true,
                   .faults = {.loss = 0.01},
                   .roce = {.idle_max = kSecond},
                   .seed = seed});
  for (std::uint64_t sent = 0; sent < frames; sent += kFramesARound) {
    SCOPED_TRACE(::testing::Message() << "after " << sent << " frames");
    Collectives collectives(1000);
    collectives.submit(world);
    for (std::size_t i = 0; i < kFramesARound; ++i) {
      const std::vector<std::byte> bytes = hostile(world, prng);
      if (prng.chance(0.7)) {
        world.port(0).arrive(bytes);  // where rank 0 sits, whose address most of them bear
      } else {
        world.endpoint(prng.below(kWorld)).on_frame(bytes, world.time());
      }
      if (i % 20 == 0) world.run(10 * kMicrosecond);
    }
    ASSERT_TRUE(world.run(1000 * kSecond));
    collectives.expect_right();
    if (::testing::Test::HasFatalFailure()) return;
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

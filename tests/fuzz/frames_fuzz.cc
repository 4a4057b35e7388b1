// Hostile bytes at the ports of the frame switch, while a job folds there: random frames, frames of the job with bits
// flipped, cut, lengthened, tagged, fragmented. Nothing crashes or leaks (the sanitizers watch), every frame that was
// received has exactly one fate, and no sum changes.
//
// NETFOLD_FUZZ_PACKETS sets how many (default 300,000), NETFOLD_SEED which.
#include <gtest/gtest.h>

#include "fuzz/right_sums.h"

namespace netfold::tests {
namespace {

class HostileFrames {
 public:
  explicit HostileFrames(std::uint64_t seed) : prng_(seed) {}

  std::vector<std::byte> make() {
    if (prng_.chance(0.2)) return random_bytes(prng_.below(2000));
    std::vector<std::byte> frame(switching::kUdpFrameBytes);
    const std::size_t payload_bytes = prng_.below(600);
    switching::write_udp_headers({{0x0200'0000'0000},
                                  {0x0200'0100'0000 + prng_.below(2000)},
                                  0x0a00'0001,
                                  0,
                                  static_cast<std::uint16_t>(1 + prng_.below(2)),
                                  static_cast<std::uint16_t>(1000 + prng_.below(2 * kWorld)),
                                  payload_bytes},
                                 frame.data());
    const auto payload = random_bytes(payload_bytes);
    frame.insert(frame.end(), payload.begin(), payload.end());
    if (payload_bytes > wire::kHeaderBytes && prng_.chance(0.7)) {  // the job's, so far as the first bytes say
      frame[switching::kUdpFrameBytes] = static_cast<std::byte>(wire::kProtocolVersion << 4 | prng_.below(5));
      switching::write_u16(&frame[switching::kUdpFrameBytes + 2], 3);
    }
    for (std::uint64_t changes = prng_.below(4); changes > 0; --changes) change(frame);
    return frame;
  }

 private:
  void change(std::vector<std::byte>& frame) {
    switch (prng_.below(5)) {
      case 0:
        if (!frame.empty()) frame[prng_.below(frame.size())] ^= static_cast<std::byte>(1u << prng_.below(8));
        break;
      case 1: frame.resize(prng_.below(frame.size() + 1)); break;
      case 2: frame.resize(frame.size() + prng_.below(1200)); break;
      case 3:
        if (frame.size() >= 14) {
          const std::byte tag[]{std::byte{0x81}, std::byte{0}, std::byte{0}, static_cast<std::byte>(prng_.next())};
          frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
        }
        break;
      default:
        if (frame.size() > 34) {  // any IPv4 header, with a checksum that fits
          frame[14 + prng_.below(20)] = static_cast<std::byte>(prng_.next());
          const std::size_t header_bytes = std::min<std::size_t>((static_cast<unsigned>(frame[14]) & 15) * 4, 20);
          switching::write_u16(&frame[24], 0);
          switching::write_u16(&frame[24],
                               static_cast<std::uint16_t>(~switching::checksum({&frame[14], header_bytes})));
        }
    }
  }

  std::vector<std::byte> random_bytes(std::size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng_.next());
    return bytes;
  }

  Prng prng_;
};

TEST(FramesFuzz, ChangeNoSumAndAreAllAccountedFor) {
  const std::uint64_t frames = from_environment("NETFOLD_FUZZ_PACKETS", 300'000) / 2;
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
  World world({.world = kWorld, .shards = 2, .seed = seed, .frames = true});
  HostileFrames hostile(seed);
  Prng prng(seed);
  for (std::uint64_t sent = 0; sent < frames;) {
    for (int i = 0; i < 500; ++i, ++sent) {
      world.frames()->port(static_cast<link::PortNumber>(prng.below(FrameSwitch::kPorts))).arrive(hostile.make());
    }
    expect_a_right_sum(world, prng);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(world.frames()->every_frame_has_one_fate());
  EXPECT_TRUE(world.mismatches().empty());
}

}  // namespace
}  // namespace netfold::tests

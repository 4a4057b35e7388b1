#include "switch/aggregation/packet_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace netfold::switching {
namespace {

class Nothing final : public AggregatorOutput {
 public:
  void result_to_all(std::uint32_t, std::span<const std::byte>) override {}
  void result_to_some(std::uint32_t, std::span<const std::byte>, std::span<const std::byte>, Receivers) override {}
  void result_to_one(std::uint16_t, std::uint32_t, std::span<const std::byte>) override {}
  void notice(std::uint16_t, std::span<const std::byte>) override {}
  void complete(std::span<const std::byte>) override {}
  void mismatch(std::uint16_t, std::string) override {}
};

// After 2^32 chunks a recorded contribution has the number of a chunk that is expected again. Its tag must not pass.
TEST(PacketFilter, DropsWhatWasRecordedBeforeTheNumbersOfChunksWrapped) {
  constexpr link::Address kWorker{0x0a000001, 7000};
  const wire::TagKey key{std::byte{7}};
  const wire::Tagger first(key);
  wire::Lease lease;
  lease.job = 1;
  lease.slots = 4;
  lease.first_chunk = 0xfffffffd;
  lease.keys.emplace(key, lease.first_chunk);
  ShardJob job({lease, {kWorker}, {}}, 0);
  PacketFilter filter(4);
  filter.place(1, &job);
  Nothing nothing;
  const auto arrives = [&](std::uint32_t chunk, const wire::Tagger& tagger) {
    wire::Header header = lease.header(wire::Kind::kContribution, 0, chunk);
    header.format = numbers::Format::kFp32;
    header.count = 1;
    const wire::HeaderBytes head = wire::emit(header);
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.resize(bytes.size() + sizeof(float));
    const wire::Tag tag = tagger.tag(head, std::span(bytes).subspan(head.size()));
    bytes.insert(bytes.end(), tag.begin(), tag.end());
    wire::Packet packet;
    const auto admitted = filter.admit(bytes, kWorker, packet);
    return admitted.job != nullptr && job.aggregator.on_packet(packet, 0, nothing) == Verdict::kFolded;
  };
  for (const std::uint32_t chunk : {0xfffffffdu, 0xfffffffeu, 0xffffffffu}) EXPECT_TRUE(arrives(chunk, first));
  EXPECT_FALSE(arrives(0, first)) << "the key of the first 2^32 chunks";
  EXPECT_EQ(filter.drops(DropReason::kBadTag), 1u);
  EXPECT_TRUE(arrives(0, lease.keys->at(0)));
  EXPECT_TRUE(arrives(1, job.aggregator.lease().keys->at(1)));
}

}  // namespace
}  // namespace netfold::switching

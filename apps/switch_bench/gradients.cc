#include "switch_bench/gradients.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/prng.h"
#include "numbers/codec.h"
#include "numbers/fold.h"

namespace netfold::apps {
namespace {

constexpr switching::MacAddress kSwitchMac{0x0200'0000'0001}, kFirstMac{0x0200'0000'0100};
constexpr std::uint32_t kFirstWorkerIp = 0x0a00'0100;  // 10.0.1.0
constexpr std::uint16_t kWorkerUdpPort = 40000;
// Every bit of a sum is compared; where both ends are on one machine, the kernel leaves a UDP checksum undone.
constexpr switching::ParseOptions kParse{.check_udp = false};

}  // namespace

Ends made_up_ends(const wire::Lease& lease, std::uint32_t switch_ip, std::uint16_t switch_udp_port) {
  Ends ends{switch_ip, std::vector<std::uint16_t>(lease.shards, switch_udp_port), {}};
  for (std::uint16_t worker = 0; worker < lease.world; ++worker) {
    ends.workers.push_back({{kFirstMac.number + worker},
                            kSwitchMac,
                            kFirstWorkerIp + worker,
                            static_cast<std::uint16_t>(kWorkerUdpPort + worker)});
  }
  return ends;
}

Gradients::Gradients(JobShape shape, Ends ends, std::uint64_t seed) : shape_(std::move(shape)), ends_(std::move(ends)) {
  const numbers::WireFormat wire = shape_.lease.wire_format(shape_.format);
  payload_bytes_ = numbers::encoded_bytes(wire, shape_.count);
  tag_bytes_ = shape_.lease.keys ? wire::kTagBytes : 0;
  const std::size_t world = shape_.lease.world;
  numbers::Folder folder(shape_.count, world, *numbers::all_kernels().back());
  Prng prng(seed);
  for (std::size_t content = 0; content < kContents; ++content) {
    std::vector<const std::byte*> by_rank;
    for (std::size_t rank = 0; rank < world; ++rank) {
      std::vector<float> floats(shape_.count);
      std::vector<std::int32_t> integers(shape_.count);
      for (std::size_t i = 0; i < shape_.count; ++i) {
        floats[i] = static_cast<float>(prng.unit() * 2 - 1) * static_cast<float>(1 << prng.below(12));
        integers[i] = static_cast<std::int32_t>(prng.next());
      }
      const bool whole = shape_.format == numbers::Format::kInt32;
      payloads_.emplace_back(payload_bytes_);
      numbers::encode(wire, whole ? numbers::ElementType::kInt32 : numbers::ElementType::kFp32,
                      whole ? static_cast<const void*>(integers.data()) : floats.data(), shape_.count,
                      payloads_.back().data());
    }
    for (std::size_t rank = 0; rank < world; ++rank) by_rank.push_back(payloads_[content * world + rank].data());
    folder.fold(wire, by_rank, shape_.count, sums_.emplace_back(payload_bytes_).data());
  }
}

switching::Admission Gradients::admission() const {
  switching::Admission admission;
  admission.lease = shape_.lease;
  for (const Ends::Worker& worker : ends_.workers) admission.workers.push_back({worker.ip, worker.udp_port});
  return admission;
}

std::size_t Gradients::write(std::uint16_t worker, const wire::Header& header, std::span<const std::byte> payload,
                             std::byte* room) const {
  const Ends::Worker& from = ends_.workers[worker];
  const std::size_t packet_bytes = wire::kHeaderBytes + payload.size() + tag_bytes_;
  const std::uint16_t to_port = ends_.switch_udp_ports[shape_.lease.shard_of(header.chunk)];
  switching::write_udp_headers(
      {from.switch_mac, from.mac, ends_.switch_ip, from.ip, to_port, from.udp_port, packet_bytes}, room);
  const wire::HeaderBytes head = wire::emit(header);
  std::byte* at = std::copy(head.begin(), head.end(), room + switching::kUdpFrameBytes);
  at = std::copy(payload.begin(), payload.end(), at);
  if (shape_.lease.keys) {
    const wire::Tag tag = shape_.lease.tag(header.chunk, head, payload);
    std::copy(tag.begin(), tag.end(), at);
  }
  return switching::kUdpFrameBytes + packet_bytes;
}

std::size_t Gradients::contribution(std::uint16_t worker, std::uint32_t chunk, std::byte* room) const {
  wire::Header header = shape_.lease.header(wire::Kind::kContribution, worker, chunk);
  header.format = shape_.format;
  header.count = shape_.count;
  return write(worker, header, payloads_[chunk % kContents * shape_.lease.world + worker], room);
}

std::size_t Gradients::question(wire::Kind kind, std::uint16_t worker, std::uint32_t chunk, std::byte* room) const {
  return write(worker, shape_.lease.header(kind, worker, chunk), {}, room);
}

bool Gradients::is_for(std::uint16_t worker, const link::Frame& frame) const {
  switching::ParsedFrame parsed;
  const Ends::Worker& to = ends_.workers[worker];
  return switching::parse(frame, kParse, parsed) == switching::Flaw::kNone && parsed.has_udp && parsed.to == to.mac &&
         parsed.ip.from == ends_.switch_ip && parsed.ip.to == to.ip && parsed.udp.to == to.udp_port;
}

Gradients::Answer Gradients::read(std::uint16_t worker, const link::OutgoingFrame& frame) const {
  // Results come in two pieces, the second of them the packet; notices in one.
  std::span<const std::byte> packet_bytes = frame.body.span();
  switching::ParsedFrame parsed;
  if (frame.body.buffer == nullptr) {
    if (switching::parse(frame.head, kParse, parsed) != switching::Flaw::kNone || !parsed.has_udp) return {};
    packet_bytes = parsed.payload();
  }
  wire::Packet packet;
  if (wire::parse(packet_bytes, packet) != wire::ParseError::kNone) return {Kind::kWrong, 0};
  const std::byte* const head = frame.head.bytes;
  const Ends::Worker& to = ends_.workers[worker];
  const bool is_mine = switching::MacAddress::read(head) == to.mac &&
                       switching::read_u32(head + switching::kEthernetBytes + 16) == to.ip &&
                       switching::read_u16(head + switching::kEthernetBytes + switching::kIpv4Bytes + 2) == to.udp_port;
  if (!is_mine || !wire::is_of_lease(shape_.lease, packet, packet_bytes)) return {Kind::kWrong, packet.header.chunk};
  const std::uint32_t chunk = packet.header.chunk;
  switch (packet.header.kind) {
    case wire::Kind::kMissing: return {Kind::kMissing, chunk};
    case wire::Kind::kWaiting: return {Kind::kWaiting, chunk, packet.header.worker};
    case wire::Kind::kEcho: return {Kind::kEcho, chunk};
    case wire::Kind::kResult: break;
    default: return {Kind::kWrong, chunk};
  }
  const auto& sum = sums_[chunk % kContents];
  const bool is_right = packet.header.count == shape_.count && packet.payload.size() == sum.size() &&
                        std::memcmp(packet.payload.data(), sum.data(), sum.size()) == 0;
  return {is_right ? Kind::kResult : Kind::kWrong, chunk};
}

}  // namespace netfold::apps

#include "switch_bench/gradients.h"

#include <algorithm>
#include <cstring>

#include "base/prng.h"
#include "numbers/codec.h"
#include "numbers/fold.h"

namespace netfold::apps {
namespace {

constexpr frames::MacAddress kSwitchMac{0x0200'0000'0001}, kFirstWorkerMac{0x0200'0000'0100};
constexpr std::uint32_t kFirstWorkerIp = 0x0a00'0100;  // 10.0.1.0
constexpr std::uint16_t kWorkerUdpPort = 40000;

}  // namespace

Gradients::Gradients(JobShape shape, std::uint32_t switch_ip, std::uint16_t udp_port, std::uint64_t seed)
    : shape_(std::move(shape)), switch_ip_(switch_ip), udp_port_(udp_port) {
  const numbers::WireFormat wire = shape_.lease.wire_format(shape_.format);
  payload_bytes_ = numbers::encoded_bytes(wire, shape_.count);
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

engine::Admission Gradients::admission() const {
  engine::Admission admission{shape_.lease, {}};
  for (std::uint16_t worker = 0; worker < shape_.lease.world; ++worker) {
    admission.workers.push_back({kFirstWorkerIp + worker, static_cast<std::uint16_t>(kWorkerUdpPort + worker)});
  }
  return admission;
}

void Gradients::write_head(std::uint16_t worker, const wire::Header& header, std::size_t payload_bytes,
                           std::byte* room) const {
  frames::UdpFrame fields{kSwitchMac,
                          {kFirstWorkerMac.number + worker},
                          switch_ip_,
                          kFirstWorkerIp + worker,
                          udp_port_,
                          static_cast<std::uint16_t>(kWorkerUdpPort + worker),
                          wire::kHeaderBytes + payload_bytes};
  frames::write_udp_headers(fields, room);
  const wire::HeaderBytes head = wire::emit(header);
  std::copy(head.begin(), head.end(), room + frames::kUdpFrameBytes);
}

std::size_t Gradients::contribution(std::uint16_t worker, std::uint32_t chunk, std::byte* room) const {
  wire::Header header = shape_.lease.header(wire::Kind::kContribution, worker, chunk);
  header.format = shape_.format;
  header.count = shape_.count;
  write_head(worker, header, payload_bytes_, room);
  const auto& payload = payloads_[chunk % kContents * shape_.lease.world + worker];
  std::memcpy(room + frames::kUdpFrameBytes + wire::kHeaderBytes, payload.data(), payload_bytes_);
  return frame_bytes();
}

std::size_t Gradients::probe(std::uint16_t worker, std::uint32_t chunk, std::byte* room) const {
  write_head(worker, shape_.lease.header(wire::Kind::kProbe, worker, chunk), 0, room);
  return frames::kUdpFrameBytes + wire::kHeaderBytes;
}

Gradients::Answer Gradients::read(std::uint16_t worker, const link::OutgoingFrame& frame) const {
  // Results come in two pieces, the second of them the packet; notices in one.
  std::span<const std::byte> packet_bytes = frame.body.span();
  frames::ParsedFrame parsed;
  if (frame.body.buffer == nullptr) {
    if (frames::parse(frame.head, {}, parsed) != frames::Flaw::kNone || !parsed.has_udp) return {};
    packet_bytes = parsed.payload();
  }
  wire::Packet packet;
  if (wire::parse(packet_bytes, packet) != wire::ParseError::kNone) return {Kind::kWrong, 0};
  const std::byte* const head = frame.head.bytes;
  const bool is_mine =
      frames::MacAddress::read(head).number == kFirstWorkerMac.number + worker &&
      frames::read_u32(head + frames::kEthernetBytes + 16) == kFirstWorkerIp + worker &&
      frames::read_u16(head + frames::kEthernetBytes + frames::kIpv4Bytes + 2) == kWorkerUdpPort + worker;
  if (!is_mine || packet.header.epoch != shape_.lease.epoch) return {Kind::kWrong, packet.header.chunk};
  const std::uint32_t chunk = packet.header.chunk;
  switch (packet.header.kind) {
    case wire::Kind::kMissing: return {Kind::kMissing, chunk};
    case wire::Kind::kWaiting: return {Kind::kWaiting, chunk};
    case wire::Kind::kResult: break;
    default: return {Kind::kWrong, chunk};
  }
  const auto& sum = sums_[chunk % kContents];
  const bool is_right = packet.header.count == shape_.count && packet.payload.size() == sum.size() &&
                        std::memcmp(packet.payload.data(), sum.data(), sum.size()) == 0;
  return {is_right ? Kind::kResult : Kind::kWrong, chunk};
}

}  // namespace netfold::apps

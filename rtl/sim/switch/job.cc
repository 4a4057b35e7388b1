#include "switch/job.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "base/prng.h"
#include "group/via_roce/qp_info.h"
#include "numbers/codec.h"
#include "switch/ethernet/headers.h"
#include "switch/roce_in_frame.h"
#include "wire/roce_network.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

constexpr std::uint16_t kPlainType = 0x88b7;  // IEEE 802: an organisation's own
constexpr std::byte kTag[kTagBytes] = {std::byte{0x81}, std::byte{0}, std::byte{0x20}, std::byte{7}};
constexpr std::uint32_t kExponents = 30;  // number of exponents of gradients

constexpr std::uint32_t kIpv4Network = 10u << 24;
constexpr std::uint8_t kTimeToLive = 64;  // of v2
constexpr std::size_t kProtocolAt = 9;    // in an IPv4 header
constexpr std::byte kTcp{6};

// The queue pair that this rank writes from.
std::uint32_t own_queue_pair(unsigned rank) {
  return 0x8000 + rank;
}

// Gradients: normally distributed numbers of very different sizes, some zeros and subnormals.
std::uint32_t gradient_bits(Prng& prng) {
  const auto bits = static_cast<std::uint32_t>(prng.next());
  const auto kind = prng.below(100);
  if (kind > 98) return 0;
  if (kind > 97) return bits & 0x807fffffu;
  return (bits & 0x807fffffu) | static_cast<std::uint32_t>(100 + prng.below(kExponents)) << 23;
}

}  // namespace

Job::Job(JobOptions options) : options_(std::move(options)), lives_(options_.ports.size()) {
  if (options_.packets < 2 || options_.packets > roce::kMessagePackets || options_.last_bytes == 0 ||
      options_.last_bytes > roce::kPathMtu || options_.last_bytes % 4 != 0) {
    throw std::invalid_argument("a message has 2 to 128 packets, its last 4 to 1024 bytes");
  }
}

std::uint32_t Job::gradient_bytes() const {
  return static_cast<std::uint32_t>((options_.packets - 1) * roce::kPathMtu + options_.last_bytes -
                                    roce::kAggregationBytes);
}

std::uint64_t Job::address(unsigned rank) const {
  return std::uint64_t{0x024e46100000} + std::uint64_t{options_.job} * 0x100 + rank;
}

std::uint32_t Job::queue_pair(unsigned rank) const {
  return 0x100u * (1 + lives_[left_of(rank)]) + 0x10000u * options_.job + rank;
}

std::uint32_t Job::psn(unsigned rank, std::uint32_t message, std::uint32_t index) const {
  const std::uint32_t base = options_.first_psn + 0x1234 * rank + 0x10203 * lives_[rank];
  return (base + message * options_.packets + index) & roce::kPsnMask;
}

void Job::restart(unsigned rank) {
  ++lives_[rank];
}

Job Job::as_plain_writes(roce::Version version) const {
  Job plain = *this;
  plain.options_.version = version;
  plain.options_.is_folded = false;
  return plain;
}

roce::Gid Job::gid(unsigned rank) const {
  if (options_.version == roce::Version::kV2) {
    return roce::gid_of_ipv4(kIpv4Network | std::uint32_t{options_.job} << 8 | (rank + 1));
  }
  roce::Gid gid{0xfe, 0x80};
  for (unsigned i = 0; i < 6; ++i) gid[10 + i] = static_cast<std::uint8_t>(address(rank) >> (40 - 8 * i));
  return gid;
}

roce::Header Job::header_between(unsigned from, unsigned to) const {
  roce::Header header;
  header.version = options_.version;
  header.from = gid(from);
  header.to = gid(to);
  if (options_.version == roce::Version::kV2) header.hop_limit = kTimeToLive;
  return header;
}

void Job::fill(unsigned rank, std::uint32_t message, std::uint32_t index, std::span<std::byte> out) const {
  Prng prng(options_.seed ^ (std::uint64_t{rank} << 56 | std::uint64_t{message} << 16 | index));
  std::vector<std::uint32_t> words(numbers::elements_that_fit(options_.format, out.size()));
  for (auto& word : words) {
    const bool is_any = options_.is_wild || options_.format.format == numbers::Format::kInt32;
    word = is_any ? static_cast<std::uint32_t>(prng.next()) : gradient_bits(prng);
  }
  std::ranges::fill(out, std::byte{0});
  const numbers::Format format = options_.format.format;
  if (format == numbers::Format::kInt32 || (options_.is_wild && format != numbers::Format::kBfp)) {
    std::memcpy(out.data(), words.data(), numbers::encoded_bytes(options_.format, words.size()));
  } else {
    numbers::encode(options_.format, numbers::ElementType::kFp32, words.data(), words.size(), out.data());
  }
}

roce::AggregationHeader Job::aggregation_header(unsigned rank, std::uint32_t message) const {
  roce::AggregationHeader header;
  header.format = options_.names_format ? options_.format.format : numbers::Format::kNone;
  if (options_.version == roce::Version::kV2 && options_.says_workers) {
    header.workers = static_cast<std::uint8_t>(world());
  }
  header.job = options_.job;
  header.epoch = options_.epoch;
  header.rank = static_cast<std::uint16_t>(rank);
  if (options_.has_one_way) {
    Prng prng(options_.seed ^ message);
    constexpr roce::Way kWays[] = {roce::Way::kToAll, roce::Way::kToOwner, roce::Way::kFromGiver};
    header.way = kWays[prng.below(std::size(kWays))];
    if (header.way != roce::Way::kToAll) header.other = static_cast<std::uint8_t>(prng.below(world()));
  }
  if (header.format == numbers::Format::kBfp) {
    header.block = options_.format.bfp.block;
    header.mantissa = options_.format.bfp.mantissa;
  }
  header.message = message;
  header.length_bytes = gradient_bytes();
  return header;
}

std::vector<std::byte> Job::payload(unsigned rank, std::uint32_t message, std::uint32_t index) const {
  const roce::AggregationHeader aggregation = aggregation_header(rank, message);
  const bool is_full = !options_.is_folded || aggregation.is_full_from(rank);
  const std::size_t own_bytes = index == 0 ? roce::kAggregationBytes : 0;
  const std::size_t full_bytes = index + 1 == options_.packets ? options_.last_bytes : roce::kPathMtu;
  std::vector<std::byte> bytes(is_full ? full_bytes : own_bytes + roce::kShortBytes);
  if (index == 0 && options_.is_folded) std::ranges::copy(roce::emit(aggregation), bytes.begin());
  if (is_full) fill(rank, message, index, std::span(bytes).subspan(own_bytes));
  return bytes;
}

std::vector<std::byte> Job::message(unsigned rank, std::uint32_t number) const {
  std::vector<std::byte> all;
  for (std::uint32_t index = 0; index < options_.packets; ++index) {
    const auto bytes = payload(rank, number, index);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

Bytes Job::contribution(unsigned rank, std::uint32_t message, std::uint32_t index) const {
  const unsigned right = right_of(rank);
  const bool is_first = index == 0, is_last = index + 1 == options_.packets;
  roce::Header header = header_between(rank, right);
  header.opcode = is_first  ? roce::Opcode::kWriteFirst
                  : is_last ? roce::Opcode::kWriteLastImmediate
                            : roce::Opcode::kWriteMiddle;
  header.wants_ack = is_last;
  header.queue_pair = queue_pair(right);
  header.source_port = roce::source_port_of(own_queue_pair(rank), header.queue_pair);
  header.psn = psn(rank, message, index);
  header.address = message % roce::kWindowMessages * group::kMessageBytes;
  header.key = 0x4e46;
  header.length_bytes = gradient_bytes() + static_cast<std::uint32_t>(roce::kAggregationBytes);
  header.immediate = message;
  return finish(header, address(right), address(rank), payload(rank, message, index));
}

Bytes Job::acknowledgement(unsigned rank, std::uint32_t message) const {
  const unsigned left = left_of(rank);
  roce::Header header = header_between(rank, left);
  header.opcode = roce::Opcode::kAcknowledge;
  header.queue_pair = own_queue_pair(left);
  header.source_port = roce::source_port_of(queue_pair(rank), header.queue_pair);
  header.psn = psn(left, message, options_.packets - 1);
  header.syndrome = roce::kAcknowledged;
  header.messages = message + 1;
  return finish(header, address(left), address(rank), {});
}

Bytes Job::greeting(unsigned rank) const {
  return plain_frame(kEverybody, address(rank), kFrameBytesMin, rank);
}

Bytes Job::finish(const roce::Header& header, std::uint64_t to, std::uint64_t from,
                  const std::vector<std::byte>& payload) const {
  const std::size_t packet_bytes = roce::packet_bytes(header.opcode, payload.size(), header.version);
  Bytes frame(roce::kEthernetBytes + packet_bytes);
  roce::emit_ethernet(to, from, frame, header.version);
  const std::span<std::byte> packet = std::span(frame).subspan(roce::kEthernetBytes);
  const std::size_t at = roce::emit(header, payload.size(), packet);
  if (!payload.empty()) std::memcpy(packet.data() + at, payload.data(), payload.size());
  roce::seal(packet);
  if (options_.has_tag) frame.insert(frame.begin() + kTagAt, std::begin(kTag), std::end(kTag));
  return frame;
}

Bytes plain_frame(std::uint64_t to, std::uint64_t from, std::size_t size_bytes, std::uint64_t seed) {
  Bytes frame(std::max(size_bytes, roce::kEthernetBytes));
  roce::emit_ethernet(to, from, frame);
  frame[12] = std::byte{kPlainType >> 8};
  frame[13] = std::byte{kPlainType & 0xff};
  Prng prng(seed);
  for (std::size_t at = roce::kEthernetBytes; at < frame.size(); ++at) frame[at] = static_cast<std::byte>(prng.next());
  frame.resize(size_bytes);
  return frame;
}

Bytes ipv4_frame(std::uint64_t to, std::uint64_t from, std::size_t size_bytes, std::uint64_t seed) {
  Prng prng(seed);
  Bytes frame = plain_frame(to, from, std::max(size_bytes, kFrameBytesMin), prng.next());
  const std::size_t room = frame.size() - switching::kUdpFrameBytes;
  const switching::UdpFrame fields{.to = {to},
                                   .from = {from},
                                   .ip_to = static_cast<std::uint32_t>(prng.next()),
                                   .ip_from = static_cast<std::uint32_t>(prng.next()),
                                   .udp_to = static_cast<std::uint16_t>(prng.below(roce::kUdpPort)),
                                   .udp_from = roce::kUdpPort,
                                   .payload_bytes = frame.size() == kFrameBytesMin ? prng.below(room + 1) : room};
  switching::write_udp_headers(fields, frame.data());
  if (prng.chance(0.5)) return frame;
  const std::span<std::byte> header = std::span(frame).subspan(roce::kEthernetBytes, roce::kIpv4Bytes);
  header[kProtocolAt] = kTcp;
  set_ipv4_checksum(header);
  return frame;
}

}  // namespace netfold::rtl

// A message of a RoCE connection that is to be folded begins with this header: NetReduce's 20 bytes between transport
// and gradients.
//
//   0        2        3        4        6        8       10       11       12               16               20
//   +--------+--------+--------+--------+--------+--------+--------+--------+----------------+----------------+
//   | magic  |ver|fmt |  flags |  job   | epoch  |  rank  | block  |mantissa|    message     |     length     |
//   +--------+--------+--------+--------+--------+--------+--------+--------+----------------+----------------+
// Only the Write First packet contains it, and so has 1004 bytes of gradients where the others have 1024
// (allreduce-switch, Table IV; the paper leaves its fields open). Numbers are in network byte order.
//
// A *one-way* message (flag 4) goes up or down, and not both ways: either all ranks contribute and one rank, the owner,
// gets the sum, or one rank, the giver, contributes and all others get its bytes. The upper byte of `rank` then has the
// owner, or the giver with its highest bit set. A packet that has nothing to say is *short*: it has its place, its
// headers and 4 bytes of zeros.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "numbers/format.h"
#include "wire/roce.h"

namespace netfold::wire::roce {

constexpr std::size_t kAggregationBytes = 20;
constexpr std::uint16_t kAggregationMagic = 0x4e46;
constexpr std::uint8_t kAggregationVersion = 1;
constexpr std::uint32_t kMessagePackets = 128;                               // at most, in one message
constexpr std::uint32_t kWindowMessages = 4;                                 // at most, of one worker on their way
constexpr std::uint32_t kWindowPackets = kMessagePackets * kWindowMessages;  // 512: the switch's buffers
constexpr std::size_t kFirstRoom = kPathMtu - kAggregationBytes;             // 1004
constexpr std::size_t kMessageRoom = kMessagePackets * kPathMtu - kAggregationBytes;  // 131052 bytes of gradients

enum AggregationFlag : std::uint8_t {
  kEndsTensor = 1,  // workers that disagree on a length find out here
  kSummed = 2,      // set by the switch: these are sums
  kOneWay = 4,      // AggregationHeader::way says which; not in AggregationHeader::flags
};
constexpr unsigned kWorkersShift = 3;  // the five bits above the flags: the number of workers
constexpr unsigned kWorkersMax = 31;   // that they can say
constexpr unsigned kOtherMax = 31;     // a rank in the upper byte of `rank`; a switch folds fewer ports
// In a short packet, where the gradients would be. An Ethernet frame of v2 then needs no padding.
constexpr std::size_t kShortBytes = 4;

enum class Way : std::uint8_t {
  kToAll,      // everyone contributes and everyone gets the sum
  kToOwner,    // everyone contributes, and one rank gets the sum
  kFromGiver,  // one rank contributes, and all others get its bytes
};

// A frame that a switch has not folded looks like one that it has, and must never be taken for one: a switch that does
// not fold here, or has just lost its memory, forwards it. So the switch marks sums: kSummed in the aggregation header,
// the highest bit of immediate data, and every packet. That mark is the flow label of v1's GRH, which the ICRC leaves
// out, or the reserved bits of v2's BTH, which senders leave 0 and receivers ignore.
constexpr std::uint32_t kSummedFlowLabel = 0x04e46;
constexpr std::uint8_t kSummedReserved = 0x4e;
constexpr std::uint32_t kSummedImmediate = 0x80000000;
// Marks a packet (from its network header on); its ICRC is then to be written anew. A UDP checksum becomes 0: none.
void mark_as_sum(std::span<std::byte> packet);
bool is_marked_as_sum(const Header& header);

struct AggregationHeader {
  numbers::Format format = numbers::Format::kNone;  // kNone: fp32 or int32, as the switch is set
  std::uint8_t flags = 0;
  std::uint8_t workers = 0;  // of the job, if the sender says so: not in RoCE v1, nor of more than kWorkersMax
  std::uint16_t job = 0, epoch = 0, rank = 0;
  Way way = Way::kToAll;
  std::uint8_t other = 0;                // of a one-way message: the owner, or the giver
  std::uint8_t block = 0, mantissa = 0;  // of bfp; 0 otherwise
  std::uint32_t message = 0;             // number within the epoch: the first is 0
  std::uint32_t length_bytes = 0;        // gradients in this message, a multiple of 4

  bool operator==(const AggregationHeader&) const = default;

  std::uint32_t packets() const {
    return static_cast<std::uint32_t>((kAggregationBytes + length_bytes + kPathMtu - 1) / kPathMtu);
  }
  // Bytes of gradients in packet `index` of the message, where it is full.
  std::size_t payload_bytes(std::uint32_t index) const;
  // Whether the packets that a rank sends, or gets from the switch, are full or short.
  bool is_full_from(std::uint32_t from) const { return way != Way::kFromGiver || from == other; }
  bool is_full_to(std::uint32_t to) const { return way == Way::kToAll || (way == Way::kToOwner) == (to == other); }
};

// kForeign: not ours, to be forwarded. The others are ours and wrong.
enum class AggregationError : std::uint8_t { kNone, kForeign, kFormat, kFlags, kOther, kShape, kLength };

// `payload` is that of a Write First. A message has two packets at least: one that fits into one packet would travel as
// a Write Only, which no switch folds.
AggregationError parse(std::span<const std::byte> payload, AggregationHeader& header, Version version = Version::kV1);
std::array<std::byte, kAggregationBytes> emit(const AggregationHeader& header);

std::string to_string(const AggregationHeader& header);
const char* name_of(AggregationError error);

}  // namespace netfold::wire::roce

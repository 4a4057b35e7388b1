// The data packet: layout, sizes, parse, emit, print. See PROTOCOL.md for the words.
//
//   0        1        2        4        6        8        10       12               16
//   +--------+--------+--------+--------+--------+--------+--------+----------------+ - - - - +- - - - -+
//   |ver|kind|fmt|flag|  job   | epoch  | worker |  slot  | count  |     chunk      | payload |   tag   |
//   +--------+--------+--------+--------+--------+--------+--------+----------------+ - - - - +- - - - -+
// Header fields are in network byte order; elements are little-endian. The tag (16 bytes) is there if its flag is set.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "numbers/format.h"

namespace netfold::wire {

constexpr std::uint8_t kProtocolVersion = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kTagBytes = 16;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kUdpIpBytes = 20 + kUdpBytes;  // with IPv4
// Chunks of one shard that may overtake a missing one before it counts as late, at the switch and at the worker alike:
// small reordering passes unnoticed.
constexpr std::uint32_t kReorderSlackChunks = 8;
constexpr std::size_t kSumBytes = 4;             // of an element of a partial sum: fp32, or int32
constexpr std::uint16_t kSwitchWorker = 0xffff;  // `worker` of a packet that concerns no single rank
constexpr std::uint16_t kNoOwner = 0xffff;       // of a chunk without bytes: a barrier
// When a switch answered an echo, by its own clock: in units of 8.192 us, of which 16 bits come round after 537 ms.
// Never 0, which says nothing.
constexpr int kEchoTimeBits = 13;
constexpr Nanoseconds kEchoTimeRange = Nanoseconds{1} << (16 + kEchoTimeBits);
constexpr std::uint16_t echo_time(Nanoseconds now) {
  return std::max<std::uint16_t>(1, static_cast<std::uint16_t>(now >> kEchoTimeBits));
}
// How much later than `time` that was, if it was less than half a range earlier or later.
constexpr Nanoseconds echo_time_since(Nanoseconds time, std::uint16_t answered) {
  const auto units = static_cast<std::int16_t>(answered - static_cast<std::uint16_t>(time >> kEchoTimeBits));
  return Nanoseconds{units} << kEchoTimeBits;
}

enum class Kind : std::uint8_t {
  kContribution = 0,  // worker to switch: my elements of this chunk
  kResult = 1,        // switch to worker: the folded elements of this chunk
  kProbe = 2,         // worker to switch: where is the result of this chunk?
  kMissing = 3,       // switch to worker: your contribution to this chunk is not here, send it
  kWaiting = 4,       // switch to worker: yours is here; the lowest rank whose is not is `worker`
  kAwait = 5,         // host to switch: tell me when all of this shard's chunks before this one are folded
  kComplete = 6,      // switch to host: they are
  kEcho = 7,          // worker to switch, which sends it back at once: how long do packets queue on the way?
  kScatter = 8,       // worker to switch: my elements of this chunk, whose sum only its owner receives
  kCopy = 9,          // worker to switch: the owner's bytes, or without them: I expect the owner's bytes
  kCopied = 10,       // switch to worker: the owner's bytes
  kDone = 11,         // switch to worker: this chunk is done, and holds nothing for you
};

// Packets that a chunk needs one of from each worker.
constexpr bool is_contribution(Kind kind) {
  return kind == Kind::kContribution || kind == Kind::kScatter || kind == Kind::kCopy;
}
// Packets that have an owner where others have a slot: the slot follows from the chunk.
constexpr bool has_owner(Kind kind) {
  return kind == Kind::kScatter || kind == Kind::kCopy;
}

enum Flag : std::uint8_t {
  kTagged = 1,   // a keyed tag follows the payload
  kLast = 2,     // this chunk is the last of its tensor: workers that disagree on a length find out here
  kAverage = 4,  // workers divide the sum by their number: workers that disagree on that find out here
  kPartial = 8,  // contribution of a switch: the sum of the ranks below it, not yet rounded to the header's format
};

// All contributions to a chunk have these alike, and their format and count.
constexpr std::uint8_t kTermFlags = kLast | kAverage;

struct Header {
  Kind kind = Kind::kContribution;
  numbers::Format format = numbers::Format::kNone;
  std::uint8_t flags = 0;
  std::uint16_t job = 0;
  std::uint16_t worker = 0;
  std::uint16_t epoch = 0;  // apart from `job`: is_of_lease() says why
  std::uint16_t slot = 0;
  // Elements; of a copy: bytes. Of a probe: chunks that its sender has sent after this one. Of an echo to a worker:
  // echo_time(), or 0. Between switches, of a waiting: the rank that is missing; of an echo: the rank that asked, plus
  // one.
  std::uint16_t count = 0;
  std::uint32_t chunk = 0;  // number of this chunk within the epoch; wraps
  std::uint16_t owner = 0;  // where has_owner(kind): the rank that receives the sum, or whose bytes these are

  bool operator==(const Header&) const = default;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes emit(const Header& header);

// The one reader of packet bytes. Returns a name for what is wrong: these are the first drop reasons.
enum class ParseError : std::uint8_t { kNone, kShort, kVersion, kKind, kFormat, kFlags, kLength };

struct Packet {
  Header header;
  std::span<const std::byte> payload;
  std::span<const std::byte> tag;  // empty, or kTagBytes
};

// Reads only the kind, of a packet that need not be valid.
inline bool is_kind(std::span<const std::byte> bytes, Kind kind) {
  return !bytes.empty() && (static_cast<unsigned>(bytes[0]) & 0xf) == static_cast<unsigned>(kind);
}

// Reads only the chunk, of a packet that was emitted.
std::uint32_t chunk_in(std::span<const std::byte> bytes);

// Checks all that can be known without the job: fields in range and consistent, tag split off, a payload where there
// must be one and none elsewhere. payload_length_is_right checks the rest once the job's bfp shape is known. A packet
// with an owner has slot 0.
ParseError parse(std::span<const std::byte> bytes, Packet& packet);

// True if the payload is exactly as long as `count` elements of the header's format take; of a partial sum: 4 bytes
// each.
bool payload_length_is_right(const Packet& packet, numbers::BfpShape bfp);

std::string to_string(const Header& header);
const char* name_of(Kind kind);
const char* name_of(ParseError error);

}  // namespace netfold::wire

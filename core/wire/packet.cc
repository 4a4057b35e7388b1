#include "wire/packet.h"

#include <fmt/core.h>

namespace netfold::wire {
namespace {

// Where each field starts; the diagram in packet.h in numbers.
constexpr std::size_t kVersionKindAt = 0, kFormatFlagsAt = 1, kJobAt = 2, kEpochAt = 4, kWorkerAt = 6, kSlotAt = 8,
                      kCountAt = 10, kChunkAt = 12;
static_assert(kChunkAt + 4 == kHeaderBytes);

void put16(HeaderBytes& bytes, std::size_t at, std::uint16_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value & 0xff);
}

std::uint16_t get16(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(bytes[at]) << 8 | static_cast<unsigned>(bytes[at + 1]));
}

bool carries_elements(Kind kind) {
  return kind == Kind::kContribution || kind == Kind::kResult || kind == Kind::kScatter;
}

// Fields that contradict each other whatever the job: elements without a format, or a format without elements.
ParseError check_fields(const Header& header) {
  if (carries_elements(header.kind)) {
    if (header.format == numbers::Format::kNone) return ParseError::kFormat;
    if (header.kind == Kind::kResult && (header.flags & kPartial) != 0) return ParseError::kFlags;
    return header.count == 0 ? ParseError::kLength : ParseError::kNone;
  }
  if (header.format != numbers::Format::kNone) return ParseError::kFormat;
  if (header.kind == Kind::kCopy || header.kind == Kind::kCopied) {  // `count` bytes of any type
    return (header.flags & (kAverage | kPartial)) != 0 ? ParseError::kFlags : ParseError::kNone;
  }
  if ((header.flags & (kTermFlags | kPartial)) != 0) return ParseError::kFlags;
  const bool may_count = header.kind == Kind::kProbe || header.kind == Kind::kWaiting || header.kind == Kind::kEcho;
  return header.count != 0 && !may_count ? ParseError::kLength : ParseError::kNone;
}

bool has_payload_it_must_have(const Packet& packet) {
  const Header& header = packet.header;
  if (header.kind == Kind::kCopied) return header.count > 0 && packet.payload.size() == header.count;
  if (header.kind == Kind::kCopy) return packet.payload.empty() || packet.payload.size() == header.count;
  return carries_elements(header.kind) != packet.payload.empty();
}

}  // namespace

HeaderBytes emit(const Header& header) {
  HeaderBytes bytes;
  bytes[kVersionKindAt] = static_cast<std::byte>(kProtocolVersion << 4 | static_cast<unsigned>(header.kind));
  bytes[kFormatFlagsAt] = static_cast<std::byte>(static_cast<unsigned>(header.format) << 4 | header.flags);
  put16(bytes, kJobAt, header.job);
  put16(bytes, kEpochAt, header.epoch);
  put16(bytes, kWorkerAt, header.worker);
  put16(bytes, kSlotAt, has_owner(header.kind) ? header.owner : header.slot);
  put16(bytes, kCountAt, header.count);
  put16(bytes, kChunkAt, static_cast<std::uint16_t>(header.chunk >> 16));
  put16(bytes, kChunkAt + 2, static_cast<std::uint16_t>(header.chunk & 0xffff));
  return bytes;
}

std::uint32_t chunk_in(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(get16(bytes, kChunkAt)) << 16 | get16(bytes, kChunkAt + 2);
}

ParseError parse(std::span<const std::byte> bytes, Packet& packet) {
  if (bytes.size() < kHeaderBytes) return ParseError::kShort;
  const unsigned version_kind = static_cast<unsigned>(bytes[kVersionKindAt]);
  const unsigned format_flags = static_cast<unsigned>(bytes[kFormatFlagsAt]);
  if (version_kind >> 4 != kProtocolVersion) return ParseError::kVersion;
  if ((version_kind & 0xf) > static_cast<unsigned>(Kind::kDone)) return ParseError::kKind;
  if (format_flags >> 4 > static_cast<unsigned>(numbers::Format::kBfp)) return ParseError::kFormat;
  if ((format_flags & 0xf & ~(kTagged | kTermFlags | kPartial)) != 0) return ParseError::kFlags;

  Header& header = packet.header;
  header.kind = static_cast<Kind>(version_kind & 0xf);
  header.format = static_cast<numbers::Format>(format_flags >> 4);
  header.flags = static_cast<std::uint8_t>(format_flags & 0xf);
  header.job = get16(bytes, kJobAt);
  header.epoch = get16(bytes, kEpochAt);
  header.worker = get16(bytes, kWorkerAt);
  const std::uint16_t slot_or_owner = get16(bytes, kSlotAt);
  header.slot = has_owner(header.kind) ? std::uint16_t{0} : slot_or_owner;
  header.owner = has_owner(header.kind) ? slot_or_owner : std::uint16_t{0};
  header.count = get16(bytes, kCountAt);
  header.chunk = chunk_in(bytes);
  if (const ParseError error = check_fields(header); error != ParseError::kNone) return error;

  std::span<const std::byte> rest = bytes.subspan(kHeaderBytes);
  packet.tag = {};
  if ((header.flags & kTagged) != 0) {
    if (rest.size() < kTagBytes) return ParseError::kShort;
    packet.tag = rest.last(kTagBytes);
    rest = rest.first(rest.size() - kTagBytes);
  }
  packet.payload = rest;
  return has_payload_it_must_have(packet) ? ParseError::kNone : ParseError::kLength;
}

bool payload_length_is_right(const Packet& packet, numbers::BfpShape bfp) {
  if (packet.header.format == numbers::Format::kNone) return packet.payload.empty();
  if ((packet.header.flags & kPartial) != 0) return packet.payload.size() == packet.header.count * kSumBytes;
  return packet.payload.size() == numbers::encoded_bytes({packet.header.format, bfp}, packet.header.count);
}

std::string to_string(const Header& header) {
  return fmt::format("{} job {} epoch {} worker {} slot {} chunk {} {} x {}{}{}{}{}", name_of(header.kind), header.job,
                     header.epoch, header.worker, header.slot, header.chunk, header.count,
                     numbers::name_of(header.format), (header.flags & kLast) != 0 ? " last" : "",
                     (header.flags & kAverage) != 0 ? " average" : "", (header.flags & kPartial) != 0 ? " partial" : "",
                     (header.flags & kTagged) != 0 ? " tagged" : "") +
         (has_owner(header.kind) ? fmt::format(" owner {}", header.owner) : "");
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kContribution: return "contribution";
    case Kind::kResult: return "result";
    case Kind::kProbe: return "probe";
    case Kind::kMissing: return "missing";
    case Kind::kWaiting: return "waiting";
    case Kind::kAwait: return "await";
    case Kind::kComplete: return "complete";
    case Kind::kEcho: return "echo";
    case Kind::kScatter: return "scatter";
    case Kind::kCopy: return "copy";
    case Kind::kCopied: return "copied";
    case Kind::kDone: return "done";
  }
  return "unknown";
}

const char* name_of(ParseError error) {
  switch (error) {
    case ParseError::kNone: return "none";
    case ParseError::kShort: return "short";
    case ParseError::kVersion: return "version";
    case ParseError::kKind: return "kind";
    case ParseError::kFormat: return "format";
    case ParseError::kFlags: return "flags";
    case ParseError::kLength: return "length";
  }
  return "unknown";
}

}  // namespace netfold::wire

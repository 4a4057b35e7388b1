// The values that the switch grants to a job at its admission: everything the data path of both sides needs to know.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "numbers/format.h"
#include "wire/packet.h"
#include "wire/tag.h"

namespace netfold::wire {

struct Lease {
  std::uint16_t job = 0;
  std::uint16_t epoch = 0;
  std::uint16_t world = 1;             // ranks 0 .. world-1; at a switch in a tree: how many contribute to it
  std::uint32_t slots = 512;           // a power of two, at most 65536; chunk c lives in slot c % slots
  std::uint16_t shards = 1;            // switch threads; slot s belongs to shard s % shards; a power of two
  std::uint16_t payload_bytes = 1456;  // the longest payload, from the smallest MTU among the workers
  numbers::BfpShape bfp = {};          // one shape a job
  std::uint32_t first_chunk = 0;       // number of the epoch's first chunk; numbers wrap
  std::optional<TagKeys> keys;         // every packet of the job is tagged if set
  bool is_tree = false;                // partial sums travel between switches: a chunk is no longer than one

  std::uint16_t slot_of(std::uint32_t chunk) const { return static_cast<std::uint16_t>(chunk & (slots - 1)); }
  std::uint16_t shard_of(std::uint32_t chunk) const {
    return static_cast<std::uint16_t>(slot_of(chunk) & (shards - 1));
  }
  // The first chunk number from first_chunk on that falls to `shard`.
  std::uint32_t first_chunk_of(std::uint16_t shard) const {
    return first_chunk + ((shard - first_chunk) & (shards - 1u));
  }
  // The fields that every packet of this job has. The caller fills in the others.
  Header header(Kind kind, std::uint16_t worker, std::uint32_t chunk) const {
    return {.kind = kind,
            .flags = keys ? std::uint8_t{kTagged} : std::uint8_t{0},
            .job = job,
            .worker = worker,
            .epoch = epoch,
            .slot = slot_of(chunk),
            .chunk = chunk};
  }
  // The elements of a chunk, except a tensor's last one.
  std::size_t elements_per_chunk(numbers::Format format) const {
    std::size_t most = numbers::elements_that_fit(wire_format(format), payload_bytes);
    if (is_tree) {
      const std::size_t whole = format == numbers::Format::kBfp ? bfp.block : 1;
      most = std::min(most, payload_bytes / kSumBytes / whole * whole);
    }
    return std::min<std::size_t>(most, UINT16_MAX);
  }
  // The job has come to this chunk, or beyond it.
  void reach(std::uint32_t chunk) {
    if (keys) keys->reach(chunk);
  }
  // Of a packet; there must be keys.
  Tag tag(std::uint32_t chunk, std::span<const std::byte> head, std::span<const std::byte> payload) const {
    return keys->at(chunk).tag(head, payload);
  }
  // Whether a packet, which came as `bytes`, has the tag that it must have.
  bool has_right_tag(const Packet& packet, std::span<const std::byte> bytes) const {
    if (!keys) return packet.tag.empty();
    const auto payload = bytes.subspan(kHeaderBytes, bytes.size() - kHeaderBytes - packet.tag.size());
    return keys->at(packet.header.chunk).is_right(bytes.first(kHeaderBytes), payload, packet.tag);
  }
  numbers::WireFormat wire_format(numbers::Format format) const { return {format, bfp}; }
};

// Whether a packet, which came as `bytes`, is of this job's epoch, with the slot and the tag it must have.
inline bool is_of_lease(const Lease& lease, const Packet& packet, std::span<const std::byte> bytes) {
  const Header& header = packet.header;
  // Two fields side by side would be compared by one load of four bytes. A load of what two stores have just written
  // waits until all stores before them are done, those of the last result to a tensor too: 0.6 us a packet.
  if (header.job != lease.job || header.epoch != lease.epoch) return false;
  if (header.slot != lease.slot_of(header.chunk)) return false;
  return lease.has_right_tag(packet, bytes);
}

// A packet without elements, tagged if its job's are.
class ShortPacket {
 public:
  ShortPacket(const Lease& lease, Kind kind, std::uint16_t worker, std::uint32_t chunk, std::uint16_t count = 0) {
    Header header = lease.header(kind, worker, chunk);
    header.count = count;
    const HeaderBytes head = emit(header);
    std::copy(head.begin(), head.end(), bytes_.begin());
    if (!lease.keys) return;
    const Tag tag = lease.tag(chunk, head, {});
    std::copy(tag.begin(), tag.end(), bytes_.begin() + kHeaderBytes);
    size_bytes_ += kTagBytes;
  }

  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_bytes_); }

 private:
  std::array<std::byte, kHeaderBytes + kTagBytes> bytes_;
  std::size_t size_bytes_ = kHeaderBytes;
};

}  // namespace netfold::wire

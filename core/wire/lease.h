// What the switch grants a job when it admits it: everything the data path of both sides needs to know.
#pragma once

#include <cstdint>
#include <optional>

#include "numbers/format.h"
#include "wire/packet.h"
#include "wire/tag.h"

namespace netfold::wire {

struct Lease {
  std::uint16_t job = 0;
  std::uint16_t epoch = 0;
  std::uint16_t world = 1;             // ranks 0 .. world-1
  std::uint32_t slots = 512;           // a power of two, at most 65536; chunk c lives in slot c % slots
  std::uint16_t shards = 1;            // switch threads; slot s belongs to shard s % shards; a power of two
  std::uint16_t payload_bytes = 1456;  // the longest payload, from the smallest MTU among the workers
  numbers::BfpShape bfp = {};          // one shape a job
  std::uint32_t first_chunk = 0;       // number of the epoch's first chunk; numbers wrap
  std::optional<TagKey> key;           // every packet of the job is tagged if set

  std::uint16_t slot_of(std::uint32_t chunk) const { return static_cast<std::uint16_t>(chunk & (slots - 1)); }
  std::uint16_t shard_of(std::uint32_t chunk) const {
    return static_cast<std::uint16_t>(slot_of(chunk) & (shards - 1));
  }
  // The first chunk number from first_chunk on that falls to `shard`.
  std::uint32_t first_chunk_of(std::uint16_t shard) const {
    return first_chunk + ((shard - first_chunk) & (shards - 1u));
  }
  // What every packet of this job has: the rest is the caller's to fill in.
  Header header(Kind kind, std::uint16_t worker, std::uint32_t chunk) const {
    return {.kind = kind,
            .flags = key ? std::uint8_t{kTagged} : std::uint8_t{0},
            .job = job,
            .epoch = epoch,
            .worker = worker,
            .slot = slot_of(chunk),
            .chunk = chunk};
  }
  numbers::WireFormat wire_format(numbers::Format format) const { return {format, bfp}; }
};

}  // namespace netfold::wire

// The keyed tag of a data packet: SipHash-2-4 with 128 bits (libsodium's crypto_shorthash_siphashx24) over header and
// payload, under a key that control messages agree for one epoch of one job. Direction is part of the header (kind),
// chunk and epoch too, and the key changes whenever the numbers of chunks wrap. So a replayed packet is at most a
// duplicate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/packet.h"

namespace netfold::wire {

using TagKey = std::array<std::byte, 16>;
using Tag = std::array<std::byte, kTagBytes>;

// `head` and `payload` together are what the tag covers.
Tag make_tag(const TagKey& key, std::span<const std::byte> head, std::span<const std::byte> payload);

// `covered` is the packet without its tag, as it arrived. Constant time.
bool tag_is_right(const TagKey& key, std::span<const std::byte> covered, std::span<const std::byte> tag);

// The keys of one epoch. A job that folds long enough meets each number of a chunk again; a packet that was recorded
// before must not pass then. Header fields say a chunk's number modulo 2^32; both sides know how far the job has come,
// so of all chunks with this number the one is meant that is nearest to that.
class TagKeys {
 public:
  TagKeys(const TagKey& first, std::uint32_t first_chunk) : first_(first), current_(first), reached_(first_chunk) {}

  TagKey at(std::uint32_t chunk) const;
  // The job has come to this chunk, or beyond it.
  void reach(std::uint32_t chunk);

  bool operator==(const TagKeys&) const = default;

 private:
  std::uint64_t nearest(std::uint32_t chunk) const;
  TagKey of_lap(std::uint32_t lap) const;

  TagKey first_, current_;  // before the first wrap; at the chunk that was reached
  std::uint64_t reached_;   // the chunk's number, not wrapped
};

}  // namespace netfold::wire

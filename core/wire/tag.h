// The keyed tag of a data packet: SipHash-2-4 with 128 bits (libsodium's crypto_shorthash_siphashx24) of the payload's
// hash (universal_hash.h) and the header, each under a key of its own. The first hash passes over the payload twenty
// times as fast as SipHash, and SipHash hides it. This is WMAC (J. Black and M. Cochran, "MAC Reforgeability", 2009)
// with the header in the place of its nonce: even where two payloads have the same hash, packets of different headers
// have tags that tell nothing of it. A process without the keys forges a packet with a probability of 2^-63 a try.
//
// The keys follow from one that control messages agree for one epoch of one job. Direction is part of the header
// (kind), chunk and epoch too, and the key changes whenever the numbers of chunks wrap. So a replayed packet is at most
// a duplicate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/packet.h"
#include "wire/universal_hash.h"

namespace netfold::wire {

using TagKey = std::array<std::byte, 16>;
using Tag = std::array<std::byte, kTagBytes>;
constexpr std::size_t kTaggedHeadBytesMax = 48;

// Makes and checks the tags of one key.
class Tagger {
 public:
  explicit Tagger(const TagKey& key, const HashKernel& kernel = hash_kernel());

  // `head` and `payload` together are what the tag covers: up to kTaggedHeadBytesMax and kHashedBytesMax bytes.
  Tag tag(std::span<const std::byte> head, std::span<const std::byte> payload) const;
  // In constant time.
  bool is_right(std::span<const std::byte> head, std::span<const std::byte> payload,
                std::span<const std::byte> tag) const;

 private:
  const HashKernel& kernel_;
  TagKey last_;  // of SipHash
  HashKey hash_key_;
};

// The keys of one epoch. A job that folds long enough meets each number of a chunk again; a packet that was recorded
// before must not pass then. Header fields say a chunk's number modulo 2^32; both sides know how far the job has come,
// so of all chunks with this number the one is meant that is nearest to that.
class TagKeys {
 public:
  TagKeys(const TagKey& first, std::uint32_t first_chunk);

  const Tagger& at(std::uint32_t chunk) const;
  // The job has come to this chunk, or beyond it.
  void reach(std::uint32_t chunk);

  bool operator==(const TagKeys& other) const { return first_ == other.first_ && reached_ == other.reached_; }

 private:
  std::uint64_t nearest(std::uint32_t chunk) const;
  std::shared_ptr<const Tagger> of_lap(std::uint32_t lap) const;

  TagKey first_;                                            // before the first wrap
  std::uint64_t reached_;                                   // the chunk's number, not wrapped
  std::shared_ptr<const Tagger> before_, current_, after_;  // one wrap earlier, now, and one wrap later
};

}  // namespace netfold::wire

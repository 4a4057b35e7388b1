// The keyed tag of a data packet: SipHash-2-4 with 128 bits (libsodium's crypto_shorthash_siphashx24) over header and
// payload, under a key that control messages agree for one epoch of one job. Direction is part of the header (kind),
// chunk and epoch too, so a replayed packet is at most a duplicate.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "wire/packet.h"

namespace netfold::wire {

using TagKey = std::array<std::byte, 16>;
using Tag = std::array<std::byte, kTagBytes>;

// `head` and `payload` together are what the tag covers.
Tag make_tag(const TagKey& key, std::span<const std::byte> head, std::span<const std::byte> payload);

// `covered` is the packet without its tag, as it arrived. Constant time.
bool tag_is_right(const TagKey& key, std::span<const std::byte> covered, std::span<const std::byte> tag);

}  // namespace netfold::wire

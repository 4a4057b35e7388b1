#include "wire/tag.h"

#include <sodium.h>

#include <algorithm>
#include <cassert>

namespace netfold::wire {
namespace {

static_assert(crypto_shorthash_siphashx24_BYTES == kTagBytes);
static_assert(crypto_shorthash_siphashx24_KEYBYTES == sizeof(TagKey));

constexpr std::size_t kCoveredBytesMax = 65536;  // a datagram is never longer

Tag hash(const TagKey& key, std::span<const std::byte> covered) {
  Tag tag;
  crypto_shorthash_siphashx24(reinterpret_cast<unsigned char*>(tag.data()),
                              reinterpret_cast<const unsigned char*>(covered.data()), covered.size(),
                              reinterpret_cast<const unsigned char*>(key.data()));
  return tag;
}

}  // namespace

Tag make_tag(const TagKey& key, std::span<const std::byte> head, std::span<const std::byte> payload) {
  // The hash wants one piece; a packet is copied once into memory that stays in cache.
  thread_local std::array<std::byte, kCoveredBytesMax> joined;
  assert(head.size() + payload.size() <= joined.size());
  const auto middle = std::copy(head.begin(), head.end(), joined.begin());
  std::copy(payload.begin(), payload.end(), middle);
  return hash(key, std::span(joined).first(head.size() + payload.size()));
}

bool tag_is_right(const TagKey& key, std::span<const std::byte> covered, std::span<const std::byte> tag) {
  if (tag.size() != kTagBytes) return false;
  const Tag expected = hash(key, covered);
  return sodium_memcmp(expected.data(), tag.data(), kTagBytes) == 0;
}

}  // namespace netfold::wire

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

TagKey TagKeys::at(std::uint32_t chunk) const {
  const auto lap = static_cast<std::uint32_t>(nearest(chunk) >> 32);
  return lap == reached_ >> 32 ? current_ : of_lap(lap);
}

void TagKeys::reach(std::uint32_t chunk) {
  const std::uint64_t now = nearest(chunk);
  if (static_cast<std::int64_t>(now - reached_) <= 0) return;
  const bool wraps = now >> 32 != reached_ >> 32;
  reached_ = now;
  if (wraps) current_ = of_lap(static_cast<std::uint32_t>(now >> 32));
}

std::uint64_t TagKeys::nearest(std::uint32_t chunk) const {
  const auto ahead = static_cast<std::int32_t>(chunk - static_cast<std::uint32_t>(reached_));
  return reached_ + static_cast<std::uint64_t>(std::int64_t{ahead});
}

TagKey TagKeys::of_lap(std::uint32_t lap) const {
  if (lap == 0) return first_;
  std::array<std::byte, 4> number;  // no packet is as short, so no packet's tag is a key
  for (std::size_t i = 0; i < number.size(); ++i) number[i] = static_cast<std::byte>(lap >> (24 - 8 * i));
  return make_tag(first_, number, {});
}

}  // namespace netfold::wire

#include "wire/tag.h"

#include <sodium.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string_view>

#include "wire/bytes.h"

namespace netfold::wire {
namespace {

static_assert(crypto_shorthash_siphashx24_BYTES == kTagBytes);
static_assert(crypto_shorthash_siphashx24_KEYBYTES == sizeof(TagKey));

Tag siphash(const TagKey& key, std::span<const std::byte> bytes) {
  Tag hash;
  crypto_shorthash_siphashx24(reinterpret_cast<unsigned char*>(hash.data()),
                              reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                              reinterpret_cast<const unsigned char*>(key.data()));
  return hash;
}

// Keys that follow from a key: SipHash of texts that differ. No number that of_lap() hashes is as long.
TagKey derived(const TagKey& key, std::string_view label, std::uint32_t number) {
  std::array<std::byte, 16> text{};
  std::memcpy(text.data(), label.data(), label.size());
  put_big<std::uint32_t>(text, 12, number);
  return siphash(key, text);
}

Block block_of(std::span<const std::byte> bytes) {
  Block block;
  std::memcpy(block.data(), bytes.data(), kBlockBytes);
  return block;
}

}  // namespace

Tagger::Tagger(const TagKey& key, const HashKernel& kernel) : kernel_(kernel), last_(derived(key, "tag", 0)) {
  for (std::uint32_t i = 0; i < hash_key_.words.size(); ++i) hash_key_.words[i] = block_of(derived(key, "clnh", i));
  kernel_.prepare(block_of(derived(key, "polyval", 0)), hash_key_.powers);
}

Tag Tagger::tag(std::span<const std::byte> head, std::span<const std::byte> payload) const {
  assert(head.size() <= kTaggedHeadBytesMax);
  const Block hash = kernel_.hash(hash_key_, payload);
  std::array<std::byte, kBlockBytes + kTaggedHeadBytesMax> covered;
  std::memcpy(covered.data(), hash.data(), kBlockBytes);
  std::copy(head.begin(), head.end(), covered.begin() + kBlockBytes);
  return siphash(last_, std::span(covered).first(kBlockBytes + head.size()));
}

bool Tagger::is_right(std::span<const std::byte> head, std::span<const std::byte> payload,
                      std::span<const std::byte> tag) const {
  if (tag.size() != kTagBytes) return false;
  const Block expected = block_of(this->tag(head, payload)), given = block_of(tag);
  return ((expected[0] ^ given[0]) | (expected[1] ^ given[1])) == 0;
}

TagKeys::TagKeys(const TagKey& first, std::uint32_t first_chunk)
    : first_(first), reached_(first_chunk), before_(of_lap(UINT32_MAX)), current_(of_lap(0)), after_(of_lap(1)) {}

// No other lap is as near.
const Tagger& TagKeys::at(std::uint32_t chunk) const {
  const auto lap = static_cast<std::uint32_t>(nearest(chunk) >> 32), own = static_cast<std::uint32_t>(reached_ >> 32);
  return lap == own ? *current_ : lap == own + 1 ? *after_ : *before_;
}

void TagKeys::reach(std::uint32_t chunk) {
  const std::uint64_t now = nearest(chunk);
  if (static_cast<std::int64_t>(now - reached_) <= 0) return;
  const bool wraps = now >> 32 != reached_ >> 32;
  reached_ = now;
  if (!wraps) return;
  before_ = std::move(current_);
  current_ = std::move(after_);
  after_ = of_lap(static_cast<std::uint32_t>(now >> 32) + 1);
}

std::uint64_t TagKeys::nearest(std::uint32_t chunk) const {
  const auto ahead = static_cast<std::int32_t>(chunk - static_cast<std::uint32_t>(reached_));
  return reached_ + static_cast<std::uint64_t>(std::int64_t{ahead});
}

std::shared_ptr<const Tagger> TagKeys::of_lap(std::uint32_t lap) const {
  if (lap == 0) return std::make_shared<Tagger>(first_);
  std::array<std::byte, 4> number;
  for (std::size_t i = 0; i < number.size(); ++i) number[i] = static_cast<std::byte>(lap >> (24 - 8 * i));
  return std::make_shared<Tagger>(siphash(first_, number));
}

}  // namespace netfold::wire

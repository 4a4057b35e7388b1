#include "wire/tag.h"

#include <sodium.h>

#include <string_view>

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

// Keys that follow from a key: SipHash of texts that differ.
TagKey derived(const TagKey& key, std::string_view label) {
  return siphash(key, std::as_bytes(std::span(label)));
}

}  // namespace

Tagger::Tagger(const TagKey& key, const PolyvalKernel& kernel) : kernel_(kernel), last_(derived(key, "siphash")) {
  kernel_.prepare(derived(key, "polyval"), powers_);
}

Tag Tagger::tag(std::span<const std::byte> head, std::span<const std::byte> payload) const {
  return siphash(last_, kernel_.hash(powers_, head, payload));
}

bool Tagger::is_right(std::span<const std::byte> head, std::span<const std::byte> payload,
                      std::span<const std::byte> tag) const {
  if (tag.size() != kTagBytes) return false;
  const Tag expected = this->tag(head, payload);
  return sodium_memcmp(expected.data(), tag.data(), kTagBytes) == 0;
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

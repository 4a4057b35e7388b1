// Tags for tests of this layer, which has no keys of its own. Every bit of a stripe changes them. Anyone could make
// them.
#pragma once

#include <cstring>
#include <memory>

#include "link/tags.h"

namespace netfold::link {

class TestTags final : public Tags {
 public:
  // The other end has them the other way round.
  TestTags(std::uint64_t sent, std::uint64_t received) : sent_(sent), received_(received) {}

  Tag of(std::span<const std::byte> header, std::span<const std::byte> bytes) const override {
    return hash(sent_, header, bytes);
  }
  bool is_right(std::span<const std::byte> header, std::span<const std::byte> bytes,
                std::span<const std::byte> tag) const override {
    const Tag right = hash(received_, header, bytes);
    return tag.size() == right.size() && std::memcmp(tag.data(), right.data(), right.size()) == 0;
  }

 private:
  static Tag hash(std::uint64_t key, std::span<const std::byte> header, std::span<const std::byte> bytes) {
    std::uint64_t sum = key;
    for (const auto part : {header, bytes}) {
      for (const std::byte each : part) sum = (sum ^ static_cast<std::uint64_t>(each)) * 0x9e3779b97f4a7c15 + 1;
    }
    const std::uint64_t both[] = {sum, ~sum * 3};
    Tag tag;
    std::memcpy(tag.data(), both, sizeof both);
    return tag;
  }

  std::uint64_t sent_, received_;
};

}  // namespace netfold::link

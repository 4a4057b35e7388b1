// Tags on the stripes of a stream (stripes.h), for a network on which others could change bytes. The layer that opens
// the stream knows the keys and makes the tags.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace netfold::link {

using StripeTag = std::array<std::byte, 16>;

// For one stream of one pair of processes. A stripe's header holds its position, and a position has the same bytes
// however often they are sent. So a stripe that is replayed, or comes late, is at most a duplicate.
class StripeTags {
 public:
  virtual ~StripeTags() = default;
  // Of a stripe that this side sends.
  virtual StripeTag of(std::span<const std::byte> header, std::span<const std::byte> bytes) const = 0;
  // Whether the other side made this tag for this stripe; in constant time.
  virtual bool is_right(std::span<const std::byte> header, std::span<const std::byte> bytes,
                        std::span<const std::byte> tag) const = 0;
};

}  // namespace netfold::link

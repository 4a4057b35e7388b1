// Tags on the bytes of a link, for a network on which others could change them. The layer that opens the link knows the
// keys and makes the tags. A link only asks for them.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace netfold::link {

using Tag = std::array<std::byte, 16>;
constexpr std::size_t kTaggedHeaderBytesMax = 48;

// Of one link between two processes. A header says the place of its bytes in the link, and no two different pieces
// that a side sends have the same one. So a piece that is replayed, or comes late, is at most a duplicate.
class Tags {
 public:
  virtual ~Tags() = default;
  // Of a piece that this side sends; the header has at most kTaggedHeaderBytesMax bytes.
  virtual Tag of(std::span<const std::byte> header, std::span<const std::byte> bytes) const = 0;
  // Whether the other side made this tag for this piece; in constant time.
  virtual bool is_right(std::span<const std::byte> header, std::span<const std::byte> bytes,
                        std::span<const std::byte> tag) const = 0;
};

}  // namespace netfold::link

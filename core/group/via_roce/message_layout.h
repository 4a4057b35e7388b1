// How a tensor is cut into messages of a RoCE connection, and the layout of a message. The aggregation header comes
// first. Then follows every packet's share of the elements, in whole blocks, so that the switch can fold each packet by
// itself. Without a format (kNone) an element is a byte, which travels as it lies in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numbers/codec.h"
#include "wire/aggregation_header.h"

namespace netfold::group {

// A message has a Write First and a Write Last at least.
constexpr std::uint32_t kMessagePacketsMin = 2;

// Whether the longest message of a job may have so many packets.
constexpr bool is_message_length(std::uint32_t packets) {
  return packets >= kMessagePacketsMin && packets <= wire::roce::kMessagePackets;
}

class MessageLayout {
 public:
  // `packets`: of the longest message, from 2 to kMessagePackets.
  explicit MessageLayout(numbers::WireFormat wire, std::uint32_t packets = wire::roce::kMessagePackets);

  std::size_t elements_a_message() const { return first_ + (packets_ - 1) * next_; }
  std::uint64_t messages(std::size_t elements) const {
    return (elements + elements_a_message() - 1) / elements_a_message();
  }
  // Gradient bytes of a message of `elements` elements (at most elements_a_message()): at least one packet's and a bit.
  std::uint32_t length_bytes(std::size_t elements) const;

  // Writes elements from `in` behind the header's place; the rest of length_bytes() is 0.
  void fill(numbers::ElementType type, const void* in, std::size_t elements, std::span<std::byte> message) const;
  // The opposite. False if a bfp block is malformed; `out` is then as it was.
  bool read(std::span<const std::byte> message, numbers::ElementType type, std::size_t elements, void* out,
            std::uint32_t divide_by) const;

  numbers::WireFormat wire() const { return wire_; }

 private:
  // Calls visit(byte in the message, first element, elements) for every packet that has elements.
  template <class Visit>
  void for_packets(std::size_t elements, Visit visit) const;
  bool copies() const { return wire_.format == numbers::Format::kNone; }
  std::size_t that_fit(std::size_t room_bytes) const {
    return copies() ? room_bytes : numbers::elements_that_fit(wire_, room_bytes);
  }
  std::size_t encoded_bytes(std::size_t elements) const {
    return copies() ? elements : numbers::encoded_bytes(wire_, elements);
  }

  numbers::WireFormat wire_;
  std::size_t packets_;
  std::size_t first_, next_;  // elements of a message's first packet, and of each other
};

}  // namespace netfold::group

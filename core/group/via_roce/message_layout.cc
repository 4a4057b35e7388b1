#include "group/via_roce/message_layout.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::group {
namespace {

namespace roce = wire::roce;

}  // namespace

MessageLayout::MessageLayout(numbers::WireFormat wire, std::uint32_t packets)
    : wire_(wire), packets_(packets), first_(that_fit(roce::kFirstRoom)), next_(that_fit(roce::kPathMtu)) {
  assert(first_ > 0 && is_message_length(packets));
}

std::uint32_t MessageLayout::length_bytes(std::size_t elements) const {
  assert(elements <= elements_a_message());
  std::size_t end = roce::kPathMtu;
  for_packets(elements,
              [&](std::size_t at, std::size_t, std::size_t count) { end = at + (encoded_bytes(count) + 3) / 4 * 4; });
  return static_cast<std::uint32_t>(std::max(end, roce::kPathMtu + 4) - roce::kAggregationBytes);
}

void MessageLayout::fill(numbers::ElementType type, const void* in, std::size_t elements,
                         std::span<std::byte> message) const {
  std::size_t end = roce::kAggregationBytes;
  for_packets(elements, [&](std::size_t at, std::size_t first, std::size_t count) {
    std::memset(message.data() + end, 0, at - end);
    if (copies()) {
      std::memcpy(message.data() + at, static_cast<const std::byte*>(in) + first, count);
    } else {
      const auto* const from = static_cast<const std::byte*>(in) + first * numbers::size_bytes(type);
      numbers::encode(wire_, type, from, count, message.data() + at);
    }
    end = at + encoded_bytes(count);
  });
  std::memset(message.data() + end, 0, roce::kAggregationBytes + length_bytes(elements) - end);
}

bool MessageLayout::read(std::span<const std::byte> message, numbers::ElementType type, std::size_t elements, void* out,
                         std::uint32_t divide_by) const {
  if (copies()) {
    for_packets(elements, [&](std::size_t at, std::size_t first, std::size_t count) {
      std::memcpy(static_cast<std::byte*>(out) + first, message.data() + at, count);
    });
    return true;
  }
  bool is_well_formed = true;
  for_packets(elements, [&](std::size_t at, std::size_t, std::size_t count) {
    is_well_formed &= numbers::is_well_formed(wire_, message.data() + at, count);
  });
  if (!is_well_formed) return false;
  for_packets(elements, [&](std::size_t at, std::size_t first, std::size_t count) {
    auto* const to = static_cast<std::byte*>(out) + first * numbers::size_bytes(type);
    numbers::decode(wire_, type, message.data() + at, count, to, divide_by);
  });
  return true;
}

template <class Visit>
void MessageLayout::for_packets(std::size_t elements, Visit visit) const {
  std::size_t first = 0;
  for (std::uint32_t packet = 0; first < elements; ++packet) {
    const std::size_t count = std::min(packet == 0 ? first_ : next_, elements - first);
    visit(packet == 0 ? roce::kAggregationBytes : packet * roce::kPathMtu, first, count);
    first += count;
  }
}

}  // namespace netfold::group

#include "group/via_switch/operation.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::group {

ChunkPlan chunks_of(std::size_t elements, numbers::WireFormat format, const wire::Lease& lease) {
  const std::size_t each = lease.elements_per_chunk(format.format);
  assert(each > 0);
  return {each, (elements + each - 1) / each};
}

Operation::Operation(Ticket ticket, const CollectiveRequest& request, const wire::Lease& lease)
    : ticket_(ticket),
      request_(request),
      wire_(lease.wire_format(request.format)),
      world_(lease.world),
      plan_(chunks_of(request.count, wire_, lease)) {
  assert(numbers::can_travel_as(request.type, request.format));
}

void Operation::start(Position first, ScratchPool& pool) {
  first_ = first;
  if (request_.is_in_place()) undo_.start(request_.out, request_.count * numbers::size_bytes(request_.type), pool);
  is_stored_.assign(plan_.chunks, false);
}

Operation::Extent Operation::extent(Position position) const {
  assert(position >= first_ && position < end());
  const std::size_t start = (position - first_) * plan_.elements_per_chunk;
  return {start, std::min(plan_.elements_per_chunk, request_.count - start)};
}

void Operation::describe(Position position, wire::Header& header) const {
  header.format = request_.format;
  header.count = static_cast<std::uint16_t>(extent(position).count);
  header.flags |= term_flags(position);
}

std::uint8_t Operation::term_flags(Position position) const {
  return static_cast<std::uint8_t>((position + 1 == end() ? wire::kLast : 0) | (request_.average ? wire::kAverage : 0));
}

std::span<const std::byte> Operation::payload(Position position, std::span<std::byte> room) const {
  const Extent chunk = extent(position);
  const auto* const from = static_cast<const std::byte*>(request_.in) + offset_bytes(chunk);
  const std::size_t size_bytes = numbers::encoded_bytes(wire_, chunk.count);
  if (numbers::is_same(request_.type, request_.format)) return {from, size_bytes};
  assert(room.size() >= size_bytes);
  numbers::encode(wire_, request_.type, from, chunk.count, room.data());
  return room.first(size_bytes);
}

bool Operation::accepts(Position position, const wire::Packet& result) const {
  const Extent chunk = extent(position);
  return result.header.format == wire_.format && result.header.count == chunk.count &&
         (result.header.flags & wire::kTermFlags) == term_flags(position) &&
         wire::payload_length_is_right(result, wire_.bfp) &&
         numbers::is_well_formed(wire_, result.payload.data(), chunk.count);
}

void Operation::store(Position position, std::span<const std::byte> payload) {
  const Extent chunk = extent(position);
  assert(!is_stored_[position - first_]);
  const std::size_t offset = offset_bytes(chunk);
  auto* const to = static_cast<std::byte*>(request_.out) + offset;
  undo_.save(offset, chunk.count * numbers::size_bytes(request_.type));
  numbers::decode(wire_, request_.type, payload.data(), chunk.count, to, request_.average ? world_ : 1);
  is_stored_[position - first_] = true;
  ++stored_;
}

void Operation::put_back() {
  undo_.put_back();
  is_stored_.assign(is_stored_.size(), false);
  stored_ = 0;
}

}  // namespace netfold::group

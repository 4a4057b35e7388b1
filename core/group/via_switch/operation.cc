#include "group/via_switch/operation.h"

#include <cassert>
#include <cstring>

namespace netfold::group {

ChunkPlan chunks_of(std::size_t elements, numbers::WireFormat format, const wire::Lease& lease) {
  const std::size_t each = lease.elements_per_chunk(format.format);
  assert(each > 0);
  return {each, (elements + each - 1) / each};
}

namespace {

using schedule::Collective;
static_assert(RequestPieces::kNoOwner == wire::kNoOwner);

wire::Kind kind_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return wire::Kind::kContribution;
    case Collective::kReduceScatter: return wire::Kind::kScatter;
    default: return wire::Kind::kCopy;
  }
}

// Of every chunk but the last one of a part.
std::size_t units_each(const CollectiveRequest& request, const wire::Lease& lease) {
  if (RequestPieces::copies(request.collective)) return lease.payload_bytes;
  return lease.elements_per_chunk(request.format);
}

}  // namespace

std::uint64_t chunks_of(const CollectiveRequest& request, const wire::Lease& lease) {
  return RequestPieces::count(request, units_each(request, lease), lease.world);
}

Operation::Operation(Ticket ticket, const CollectiveRequest& request, const wire::Lease& lease, std::uint16_t rank)
    : ticket_(ticket),
      request_(request),
      wire_(lease.wire_format(request.format)),
      world_(lease.world),
      rank_(rank),
      kind_(kind_of(request.collective)),
      pieces_(request, wire_, units_each(request, lease), lease.world, rank) {
  if (kind_ == wire::Kind::kCopy) wire_.format = numbers::Format::kNone;
  assert(kind_ == wire::Kind::kCopy || numbers::can_travel_as(request.type, request.format));
}

void Operation::start(Position first, ScratchPool& pool) {
  first_ = first;
  pieces_.start(pool);
  is_stored_.assign(chunks(), false);
}

void Operation::finish(ScratchPool& pool) {
  pieces_.finish(pool);
}

RequestPieces::Piece Operation::piece(Position position) const {
  assert(position >= first_ && position < end());
  return pieces_.at(position - first_);
}

void Operation::describe(Position position, wire::Header& header) const {
  const RequestPieces::Piece chunk = piece(position);
  header.kind = kind_;
  header.format = wire_.format;
  header.count = static_cast<std::uint16_t>(chunk.count);
  header.owner = wire::has_owner(kind_) ? chunk.owner : std::uint16_t{0};
  header.flags |= term_flags(position);
}

std::uint8_t Operation::term_flags(Position position) const {
  return static_cast<std::uint8_t>((position + 1 == end() ? wire::kLast : 0) | (request_.average ? wire::kAverage : 0));
}

std::span<const std::byte> Operation::payload(Position position, std::span<std::byte> room) const {
  const RequestPieces::Piece chunk = piece(position);
  if (kind_ == wire::Kind::kCopy) {
    return chunk.owner == rank_ ? std::span(pieces_.source(chunk), chunk.count) : std::span<const std::byte>{};
  }
  const std::byte* const from = pieces_.source(chunk);
  const std::size_t size_bytes = numbers::encoded_bytes(wire_, chunk.count);
  if (request_.is_encoded || numbers::is_same(request_.type, request_.format)) return {from, size_bytes};
  assert(room.size() >= size_bytes);
  numbers::encode(wire_, request_.type, from, chunk.count, room.data());
  return room.first(size_bytes);
}

bool Operation::accepts(Position position, const wire::Packet& result) const {
  const RequestPieces::Piece chunk = piece(position);
  if (!pieces_.receives(chunk)) return false;
  if (kind_ == wire::Kind::kCopy) {
    return result.header.kind == wire::Kind::kCopied && result.header.count == chunk.count &&
           (result.header.flags & wire::kTermFlags) == term_flags(position);
  }
  return result.header.kind == wire::Kind::kResult && result.header.format == wire_.format &&
         result.header.count == chunk.count && (result.header.flags & wire::kTermFlags) == term_flags(position) &&
         wire::payload_length_is_right(result, wire_.bfp) &&
         numbers::is_well_formed(wire_, result.payload.data(), chunk.count);
}

void Operation::store(Position position, std::span<const std::byte> payload) {
  const RequestPieces::Piece chunk = piece(position);
  std::byte* const to = pieces_.target(chunk);
  if (kind_ == wire::Kind::kCopy || request_.is_encoded) {
    std::memcpy(to, payload.data(), payload.size());
  } else {
    numbers::decode(wire_, request_.type, payload.data(), chunk.count, to, request_.average ? world_ : 1);
  }
  count_stored(position);
}

void Operation::store_done(Position position) {
  pieces_.copy_own(piece(position));
  count_stored(position);
}

void Operation::count_stored(Position position) {
  assert(!is_stored_[position - first_]);
  is_stored_[position - first_] = true;
  ++stored_;
}

void Operation::put_back() {
  pieces_.put_back();
  is_stored_.assign(is_stored_.size(), false);
  stored_ = 0;
}

}  // namespace netfold::group

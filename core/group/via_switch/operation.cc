#include "group/via_switch/operation.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace netfold::group {

ChunkPlan chunks_of(std::size_t elements, numbers::WireFormat format, const wire::Lease& lease) {
  const std::size_t each = lease.elements_per_chunk(format.format);
  assert(each > 0);
  return {each, (elements + each - 1) / each};
}

namespace {

using schedule::Collective;

wire::Kind kind_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return wire::Kind::kContribution;
    case Collective::kReduceScatter: return wire::Kind::kScatter;
    default: return wire::Kind::kCopy;
  }
}

ChunkPlan chunks_of_bytes(std::size_t size_bytes, const wire::Lease& lease) {
  const std::size_t each = lease.payload_bytes;
  return {each, (size_bytes + each - 1) / each};
}

// Of one part.
ChunkPlan plan_of(const CollectiveRequest& request, const wire::Lease& lease) {
  if (request.collective == Collective::kBarrier) return {0, 1};
  if (kind_of(request.collective) == wire::Kind::kCopy) {
    return chunks_of_bytes(request.count * numbers::size_bytes(request.type), lease);
  }
  return chunks_of(request.count, lease.wire_format(request.format), lease);
}

std::uint16_t parts_of(Collective collective, std::uint16_t world) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather ? world : 1;
}

}  // namespace

std::uint64_t chunks_of(const CollectiveRequest& request, const wire::Lease& lease) {
  return plan_of(request, lease).chunks * parts_of(request.collective, lease.world);
}

Operation::Operation(Ticket ticket, const CollectiveRequest& request, const wire::Lease& lease, std::uint16_t rank)
    : ticket_(ticket),
      request_(request),
      wire_(lease.wire_format(request.format)),
      world_(lease.world),
      rank_(rank),
      kind_(kind_of(request.collective)),
      parts_(parts_of(request.collective, lease.world)),
      plan_(plan_of(request, lease)) {
  const std::size_t element_bytes = numbers::size_bytes(request.type);
  if (kind_ == wire::Kind::kCopy) {
    wire_.format = numbers::Format::kNone;
    unit_bytes_ = 1;
    part_units_ = request.count * element_bytes;
    stride_ = request.stride() * element_bytes;
    return;
  }
  assert(numbers::can_travel_as(request.type, request.format));
  unit_bytes_ = element_bytes;
  part_units_ = request.count;
  stride_ = request.stride();
}

void Operation::start(Position first, ScratchPool& pool) {
  first_ = first;
  keep_input(pool);
  is_stored_.assign(chunks(), false);
}

// A chunk's result may overwrite what this rank has contributed to that chunk, which is saved before, and nothing else:
// later chunks may still have to be sent, also again.
void Operation::keep_input(ScratchPool& pool) {
  const std::size_t part_bytes = bytes_of(part_units_);
  if (part_bytes == 0) return;
  if (parts_ == 1) {
    const bool is_own = kind_ == wire::Kind::kCopy && rank_ == request_.root;
    if (request_.is_in_place() && !is_own) undo_.start(request_.out, part_bytes, pool);
    return;
  }
  const bool scatters = kind_ == wire::Kind::kScatter;
  if (!overwrites_input(request_, world_)) return;
  const auto* const in = static_cast<const std::byte*>(request_.in);
  auto* const out = static_cast<std::byte*>(request_.out);
  const std::size_t own_at = rank_ * bytes_of(stride_);
  if (scatters && out == in + own_at) return undo_.start(out, part_bytes, pool);
  if (!scatters && in == out + own_at) return;  // the own part stays
  input_ = pool.take(in_bytes(request_, world_));
  std::memcpy(input_.bytes.get(), in, in_bytes(request_, world_));
}

void Operation::finish(ScratchPool& pool) {
  undo_.finish(pool);
  pool.give_back(std::exchange(input_, {}));
}

Operation::Extent Operation::extent(Position position) const {
  assert(position >= first_ && position < end());
  const std::uint64_t number = position - first_;
  const std::size_t start = number / parts_ * plan_.elements_per_chunk;
  const std::size_t count = std::min(plan_.elements_per_chunk, part_units_ - start);
  if (parts_ > 1) return {start, count, static_cast<std::uint16_t>(number % parts_)};
  const bool has_owner = kind_ != wire::Kind::kContribution && part_units_ > 0;
  return {start, count, has_owner ? static_cast<std::uint16_t>(request_.root) : wire::kNoOwner};
}

bool Operation::receives(const Extent& extent) const {
  switch (kind_) {
    case wire::Kind::kContribution: return true;
    case wire::Kind::kScatter: return extent.owner == rank_;
    default: return extent.owner != rank_ && extent.owner != wire::kNoOwner;
  }
}

std::size_t Operation::bytes_of(std::size_t units) const {
  return request_.is_encoded ? numbers::encoded_bytes(wire_, units) : units * unit_bytes_;
}

// Where this rank's contribution lies.
const std::byte* Operation::source(const Extent& extent) const {
  const auto* const in = input_.bytes ? input_.bytes.get() : static_cast<const std::byte*>(request_.in);
  const std::size_t part = kind_ == wire::Kind::kScatter ? extent.owner * stride_ : 0;
  return in + bytes_of(part + extent.first);
}

// Of what this rank gets, in `out`.
std::size_t Operation::target_offset(const Extent& extent) const {
  const bool gathers = kind_ == wire::Kind::kCopy && parts_ > 1;
  return bytes_of((gathers ? extent.owner * stride_ : 0) + extent.first);
}

void Operation::describe(Position position, wire::Header& header) const {
  const Extent chunk = extent(position);
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
  const Extent chunk = extent(position);
  if (kind_ == wire::Kind::kCopy) {
    return chunk.owner == rank_ ? std::span(source(chunk), chunk.count) : std::span<const std::byte>{};
  }
  const std::byte* const from = source(chunk);
  const std::size_t size_bytes = numbers::encoded_bytes(wire_, chunk.count);
  if (request_.is_encoded || numbers::is_same(request_.type, request_.format)) return {from, size_bytes};
  assert(room.size() >= size_bytes);
  numbers::encode(wire_, request_.type, from, chunk.count, room.data());
  return room.first(size_bytes);
}

bool Operation::accepts(Position position, const wire::Packet& result) const {
  const Extent chunk = extent(position);
  if (!receives(chunk)) return false;
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
  const Extent chunk = extent(position);
  const std::size_t offset = target_offset(chunk);
  auto* const to = static_cast<std::byte*>(request_.out) + offset;
  undo_.save(offset, bytes_of(chunk.count));
  if (kind_ == wire::Kind::kCopy || request_.is_encoded) {
    std::memcpy(to, payload.data(), payload.size());
  } else {
    numbers::decode(wire_, request_.type, payload.data(), chunk.count, to, request_.average ? world_ : 1);
  }
  count_stored(position);
}

void Operation::store_done(Position position) {
  const Extent chunk = extent(position);
  if (kind_ == wire::Kind::kCopy && chunk.owner == rank_) {  // the own bytes do not come back
    auto* const to = static_cast<std::byte*>(request_.out) + target_offset(chunk);
    const std::byte* const from = source(chunk);
    if (to != from) std::memcpy(to, from, chunk.count);
  }
  count_stored(position);
}

void Operation::count_stored(Position position) {
  assert(!is_stored_[position - first_]);
  is_stored_[position - first_] = true;
  ++stored_;
}

void Operation::put_back() {
  undo_.put_back();
  if (input_.bytes) {
    std::memcpy(const_cast<void*>(request_.in), input_.bytes.get(), in_bytes(request_, world_));  // `out` overlaps it
  }
  is_stored_.assign(is_stored_.size(), false);
  stored_ = 0;
}

}  // namespace netfold::group

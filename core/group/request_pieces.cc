#include "group/request_pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace netfold::group {
namespace {

using schedule::Collective;

std::uint16_t parts_of(Collective collective, std::uint16_t world) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather ? world : std::uint16_t{1};
}

std::size_t units_of(const CollectiveRequest& request, std::size_t elements) {
  return RequestPieces::copies(request.collective) ? elements * numbers::size_bytes(request.type) : elements;
}

}  // namespace

bool RequestPieces::copies(Collective collective) {
  return collective != Collective::kAllReduce && collective != Collective::kReduceScatter;
}

std::uint64_t RequestPieces::count(const CollectiveRequest& request, std::size_t units_each, std::uint16_t world) {
  if (request.collective == Collective::kBarrier) return 1;
  const std::size_t units = units_of(request, request.count);
  return (units + units_each - 1) / units_each * parts_of(request.collective, world);
}

RequestPieces::RequestPieces(const CollectiveRequest& request, numbers::WireFormat wire, std::size_t units_each,
                             std::uint16_t world, std::uint16_t rank)
    : request_(request),
      wire_(wire),
      world_(world),
      rank_(rank),
      copies_(copies(request.collective)),
      parts_(parts_of(request.collective, world)),
      unit_bytes_(copies_ ? 1 : numbers::size_bytes(request.type)),
      units_each_(units_each),
      part_units_(units_of(request, request.count)),
      stride_(units_of(request, request.stride())),
      count_(count(request, units_each, world)) {}

// A piece's result may overwrite what this rank has contributed to that piece, which is saved before, and nothing else:
// later pieces may still have to be sent, also again.
void RequestPieces::start(ScratchPool& pool) {
  const std::size_t part_bytes = bytes_of(part_units_);
  if (part_bytes == 0) return;
  if (parts_ == 1) {
    const bool is_own = copies_ && rank_ == request_.root;
    if (request_.is_in_place() && !is_own) undo_.start(request_.out, part_bytes, pool);
    return;
  }
  if (!overwrites_input(request_, world_)) return;
  const auto* const in = static_cast<const std::byte*>(request_.in);
  auto* const out = static_cast<std::byte*>(request_.out);
  const std::size_t own_at = rank_ * bytes_of(stride_);
  if (!copies_ && out == in + own_at) return undo_.start(out, part_bytes, pool);
  if (copies_ && in == out + own_at) return;  // the own part stays
  input_ = pool.take(in_bytes(request_, world_));
  std::memcpy(input_.bytes.get(), in, in_bytes(request_, world_));
}

void RequestPieces::finish(ScratchPool& pool) {
  undo_.finish(pool);
  pool.give_back(std::exchange(input_, {}));
}

RequestPieces::Piece RequestPieces::at(std::uint64_t number) const {
  const std::size_t first = number / parts_ * units_each_;
  const std::size_t units = std::min(units_each_, part_units_ - first);
  if (parts_ > 1) return {first, units, static_cast<std::uint16_t>(number % parts_)};
  const bool has_owner = request_.collective != Collective::kAllReduce && part_units_ > 0;
  return {first, units, has_owner ? static_cast<std::uint16_t>(request_.root) : kNoOwner};
}

bool RequestPieces::receives(const Piece& piece) const {
  if (copies_) return piece.owner != rank_ && piece.owner != kNoOwner;
  return piece.owner == rank_ || piece.owner == kNoOwner;
}

std::size_t RequestPieces::bytes_of(std::size_t units) const {
  return request_.is_encoded ? numbers::encoded_bytes(wire_, units) : units * unit_bytes_;
}

const std::byte* RequestPieces::source(const Piece& piece) const {
  const auto* const in = input_.bytes ? input_.bytes.get() : static_cast<const std::byte*>(request_.in);
  const bool scatters = !copies_ && parts_ > 1;
  return in + bytes_of((scatters ? piece.owner * stride_ : 0) + piece.first);
}

// Of what this rank gets, in `out`.
std::size_t RequestPieces::target_offset(const Piece& piece) const {
  const bool gathers = copies_ && parts_ > 1;
  return bytes_of((gathers ? piece.owner * stride_ : 0) + piece.first);
}

std::byte* RequestPieces::target(const Piece& piece) {
  const std::size_t offset = target_offset(piece);
  undo_.save(offset, bytes_of(piece.count));
  return static_cast<std::byte*>(request_.out) + offset;
}

void RequestPieces::copy_own(const Piece& piece) {
  if (!copies_ || piece.owner != rank_) return;
  auto* const to = static_cast<std::byte*>(request_.out) + target_offset(piece);
  const std::byte* const from = source(piece);
  if (to != from) std::memcpy(to, from, piece.count);
}

void RequestPieces::put_back() {
  undo_.put_back();
  if (!input_.bytes) return;
  std::memcpy(const_cast<void*>(request_.in), input_.bytes.get(), in_bytes(request_, world_));  // `out` overlaps it
}

}  // namespace netfold::group

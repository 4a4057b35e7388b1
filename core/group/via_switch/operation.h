// One collective on its way to a switch: a piece of it (group/request_pieces.h) is a chunk. This page has the packets
// of these chunks, and checks their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "group/collective_request.h"
#include "group/request_pieces.h"
#include "group/via_switch/window.h"
#include "numbers/codec.h"
#include "wire/lease.h"

namespace netfold::group {

// A tensor's chunks (or those of a rank's part), and how many elements each has but the last, which may have fewer.
struct ChunkPlan {
  std::size_t elements_per_chunk;
  std::uint64_t chunks;
};
ChunkPlan chunks_of(std::size_t elements, numbers::WireFormat format, const wire::Lease& lease);
// How many chunks the whole collective has.
std::uint64_t chunks_of(const CollectiveRequest& request, const wire::Lease& lease);

class Operation {
 public:
  using Position = Window::Position;
  using Ticket = std::uint64_t;

  // `request` is one that check_in_network lets pass.
  Operation(Ticket ticket, const CollectiveRequest& request, const wire::Lease& lease, std::uint16_t rank);

  Ticket ticket() const { return ticket_; }
  std::uint64_t chunks() const { return pieces_.count(); }
  std::size_t elements() const { return request_.count; }
  Direction direction() const {  // in which most bytes go
    if (kind_ == wire::Kind::kContribution) return Direction::kBoth;
    return kind_ == wire::Kind::kScatter ? Direction::kUp : Direction::kDown;
  }
  bool is_whole() const { return stored_ == chunks(); }

  // Before the first chunk is sent: where in the stream it starts. `pool`: for what results overwrite in place.
  void start(Position first, ScratchPool& pool);
  void finish(ScratchPool& pool);
  Position first() const { return first_; }
  Position end() const { return first_ + chunks(); }

  // Fills kind, format, flags, count and owner of the header of a contribution.
  void describe(Position position, wire::Header& header) const;
  // Its payload, empty if the bytes are another rank's: the tensor's own memory where that is what travels, otherwise
  // encoded into `room`.
  std::span<const std::byte> payload(Position position, std::span<std::byte> room) const;

  // False if a result's header is not what this chunk must look like, or its blocks are malformed.
  bool accepts(Position position, const wire::Packet& result) const;
  void store(Position position, std::span<const std::byte> payload);
  // The same where the switch has nothing for this rank, but the chunk is done.
  bool accepts_done(Position position) const { return !pieces_.receives(piece(position)); }
  void store_done(Position position);
  void put_back();

 private:
  RequestPieces::Piece piece(Position position) const;
  void count_stored(Position position);
  std::uint8_t term_flags(Position position) const;

  Ticket ticket_;
  CollectiveRequest request_;
  numbers::WireFormat wire_;
  std::uint16_t world_, rank_;
  wire::Kind kind_;  // of its contributions
  RequestPieces pieces_;
  std::uint64_t stored_ = 0;
  Position first_ = 0;
  std::vector<bool> is_stored_;  // by chunk
};

}  // namespace netfold::group

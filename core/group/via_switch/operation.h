// One collective on its way: how its tensor is cut into chunks, what each chunk carries, and where results go.
//
// A chunk belongs to all ranks (all-reduce) or has an owner: the rank that receives its sum (reduce-scatter), or whose
// bytes it is (all-gather, broadcast). Where every rank owns a part, the chunks of the parts take turns, so that every
// rank's link is busy all the time. A barrier is one chunk without bytes.
//
// Results are written to `out` as they come. In place, the bytes that they replace are saved before: a tensor that
// cannot be folded whole is put back as it was. Saving chunk by chunk costs the same memory traffic as a copy at the
// end, but hides it behind the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "group/collective_request.h"
#include "group/undo.h"
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
  std::uint64_t chunks() const { return plan_.chunks * parts_; }
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
  bool accepts_done(Position position) const { return !receives(extent(position)); }
  void store_done(Position position);
  void put_back();

 private:
  struct Extent {
    std::size_t first, count;  // units: elements, or bytes where these are copied
    std::uint16_t owner;
  };
  Extent extent(Position position) const;
  bool receives(const Extent& extent) const;
  void keep_input(ScratchPool& pool);
  const std::byte* source(const Extent& extent) const;
  std::size_t bytes_of(std::size_t units) const;
  std::size_t target_offset(const Extent& extent) const;
  void count_stored(Position position);
  std::uint8_t term_flags(Position position) const;

  Ticket ticket_;
  CollectiveRequest request_;
  numbers::WireFormat wire_;
  std::uint16_t world_, rank_;
  wire::Kind kind_;         // of its contributions
  std::uint16_t parts_;     // each with an owner, or one
  std::size_t unit_bytes_;  // not of encoded elements
  std::size_t part_units_;  // of one part
  std::size_t stride_;      // units from where one rank's part begins to the next
  ChunkPlan plan_;          // of one part
  std::uint64_t stored_ = 0;
  Position first_ = 0;
  Undo undo_;
  ScratchBuffer input_;          // a copy of what was handed over, where results overlap what is still to be sent
  std::vector<bool> is_stored_;  // by chunk
};

}  // namespace netfold::group

// One all-reduce on its way: how its tensor is cut into chunks, what each chunk carries, and where results go.
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

// A tensor's chunks, and how many elements each has but the last, which may have fewer.
struct ChunkPlan {
  std::size_t elements_per_chunk;
  std::uint64_t chunks;
};
ChunkPlan chunks_of(std::size_t elements, numbers::WireFormat format, const wire::Lease& lease);

class Operation {
 public:
  using Position = Window::Position;
  using Ticket = std::uint64_t;

  Operation(Ticket ticket, const CollectiveRequest& request, const wire::Lease& lease);

  Ticket ticket() const { return ticket_; }
  std::uint64_t chunks() const { return plan_.chunks; }
  std::size_t elements() const { return request_.count; }
  bool is_whole() const { return stored_ == plan_.chunks; }

  // Before the first chunk is sent: where in the stream it starts. `pool`: for what results overwrite in place.
  void start(Position first, ScratchPool& pool);
  void finish(ScratchPool& pool) { undo_.finish(pool); }
  Position first() const { return first_; }
  Position end() const { return first_ + plan_.chunks; }

  // Fills format, flags and count of the header of a contribution.
  void describe(Position position, wire::Header& header) const;
  // Its payload: the tensor's own memory where that is what travels, otherwise encoded into `room`.
  std::span<const std::byte> payload(Position position, std::span<std::byte> room) const;

  // False if a result's header is not what this chunk must look like, or its blocks are malformed.
  bool accepts(Position position, const wire::Packet& result) const;
  void store(Position position, std::span<const std::byte> payload);
  void put_back();

 private:
  struct Extent {
    std::size_t first, count;  // elements
  };
  Extent extent(Position position) const;
  std::uint8_t term_flags(Position position) const;
  std::size_t offset_bytes(const Extent& extent) const { return extent.first * numbers::size_bytes(request_.type); }

  Ticket ticket_;
  CollectiveRequest request_;
  numbers::WireFormat wire_;
  std::uint16_t world_;
  ChunkPlan plan_;
  std::uint64_t stored_ = 0;
  Position first_ = 0;
  Undo undo_;
  std::vector<bool> is_stored_;  // by chunk
};

}  // namespace netfold::group

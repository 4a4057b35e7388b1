// A request cut into pieces, for backends that send it through a switch piece by piece: whose bytes each piece has, who
// gets it, and where it lies in the caller's memory.
//
// A piece belongs to all ranks (all-reduce) or has an owner: the rank that receives its sum (reduce-scatter), or whose
// bytes it is (all-gather, broadcast). Where every rank owns a part, the pieces of the parts take turns, so that every
// rank's link is busy all the time. A barrier is one piece without bytes.
//
// Results are written to `out` as they come. In place, the bytes that they replace are saved before: a tensor that
// cannot be folded whole is put back as it was. Saving piece by piece costs the same memory traffic as a copy at the
// end, but hides it behind the network.
#pragma once

#include <cstddef>
#include <cstdint>

#include "group/collective_request.h"
#include "group/undo.h"

namespace netfold::group {

class RequestPieces {
 public:
  static constexpr std::uint16_t kNoOwner = 0xffff;
  struct Piece {
    std::size_t first, count;  // units of the part: elements, or bytes where these are copied
    std::uint16_t owner;
  };

  // `request` is one that check_in_network lets pass. `wire`: of encoded elements. `units_each`: of every piece but the
  // last one of a part.
  RequestPieces(const CollectiveRequest& request, numbers::WireFormat wire, std::size_t units_each, std::uint16_t world,
                std::uint16_t rank);

  // Whether a collective adds nothing up: its bytes travel as they lie in memory.
  static bool copies(schedule::Collective collective);
  static std::uint64_t count(const CollectiveRequest& request, std::size_t units_each, std::uint16_t world);
  std::uint64_t count() const { return count_; }
  Piece at(std::uint64_t number) const;

  bool receives(const Piece& piece) const;
  std::size_t bytes_of(std::size_t units) const;
  // Where this rank's contribution lies.
  const std::byte* source(const Piece& piece) const;
  // Where the result goes. What is there is saved, where it may have to be put back; so it is called once for a piece.
  std::byte* target(const Piece& piece);
  // The same where this rank gets nothing: the bytes that it gave to the others may have to be copied.
  void copy_own(const Piece& piece);

  // Before the first source(): copies what results will overwrite and is still to be sent.
  void start(ScratchPool& pool);
  void finish(ScratchPool& pool);
  void put_back();

 private:
  std::size_t target_offset(const Piece& piece) const;

  CollectiveRequest request_;
  numbers::WireFormat wire_;
  std::uint16_t world_, rank_;
  bool copies_;
  std::uint16_t parts_;     // each with an owner, or one
  std::size_t unit_bytes_;  // not of encoded elements
  std::size_t units_each_;
  std::size_t part_units_;  // of one part
  std::size_t stride_;      // units from where one rank's part begins to the next
  std::uint64_t count_;
  Undo undo_;
  ScratchBuffer input_;  // a copy of what was handed over, where results overlap what is still to be sent
};

}  // namespace netfold::group

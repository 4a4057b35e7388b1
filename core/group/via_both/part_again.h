// A part of a tensor that was at a lost switch, done again among the ranks, by messages. Collectives among ranks run in
// one order, and a rank that lacks this part may be unable to begin what others have begun since: its caller waits for
// the part first. A message waits for no collective (via_peers/messages.h). Does no I/O: it submits messages.
//
// Each rank owns a slice of the part. The others send it what they contributed to that slice, as it travels to a
// switch. The owner folds it in the order of ranks, as the switch would have, and sends the sum to all. A
// reduce-scatter ends with the fold, an all-gather has nothing else than the second step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "group/session.h"
#include "group/via_both/kept_parts.h"

namespace netfold::group {

class PartAgain {
 public:
  // Hands a kSend or kReceive over.
  using Submit = std::function<Ticket(const CollectiveRequest& message)>;

  // `number`: of this part among all parts of lost switches, below kNumbers; alike on all ranks, and never used twice.
  PartAgain(const KeptPart& part, int rank, int world, std::uint64_t number);

  static constexpr std::uint64_t kNumbers = std::uint64_t{1} << 62;

  void begin(const Submit& submit);
  // False if the message is of another part.
  bool end(Ticket message, const Submit& submit);
  // The result is where the request wants it, and no other rank needs anything more of this one.
  bool is_over() const { return contributions_.empty() && others_.empty(); }
  // Of its tensor; kOver: only other ranks need the part.
  Ticket piece() const { return part_.piece; }

 private:
  // What a rank owns: elements of `in` (of `out` in an all-gather), and the bytes that they take on their way.
  struct Slice {
    std::size_t first, count, first_byte, size_bytes;
  };

  bool folds() const { return part_.request.collective != schedule::Collective::kAllGather; }
  bool spreads() const { return part_.request.collective != schedule::Collective::kReduceScatter; }
  std::size_t on_the_wire(std::size_t elements) const;
  const Slice& own() const { return slices_[static_cast<std::size_t>(rank_)]; }
  const std::byte* contribution_to(const Slice& slice);
  void fold();
  void spread(const Submit& submit);
  void store();
  Ticket send(int to, bool is_sum, const std::byte* bytes, std::size_t size_bytes, const Submit& submit) const;
  Ticket receive(int from, bool is_sum, std::byte* to, std::size_t size_bytes, const Submit& submit) const;

  const KeptPart part_;
  const int rank_, world_;
  const std::uint64_t number_;
  std::vector<Slice> slices_;  // by rank
  Buffer encoded_;             // own contribution to all slices, where it does not lie in memory as it travels
  Buffer received_;            // what the others contributed to the own slice, by rank
  Buffer sums_;                // of all slices, as they travel
  std::vector<Ticket> contributions_, others_;  // messages on their way: contributions to come, all others
};

}  // namespace netfold::group

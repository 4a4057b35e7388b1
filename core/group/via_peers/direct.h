// Runs the direct algorithm among ranks of one machine, in memory that all of them map. Each chunk of a tensor takes
// three moves: every rank writes its chunk there (contributes), sums its own segment of all ranks' chunks, and takes
// all segments' sums. So a tensor is read once and written once, and what lies between stays in the caches. A small
// chunk takes two: every rank sums all of it for itself.
//
// Chunks are summed pairwise in rank order, as a switch does (numbers/fold.h): the bits are those of in-network
// folding.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "group/collective_request.h"
#include "group/undo.h"
#include "group/via_peers/message.h"
#include "group/via_peers/runner.h"
#include "link/shm/arena.h"
#include "link/shm/doorbell.h"
#include "numbers/fold.h"
#include "schedule/schedule.h"

namespace netfold::group {

class DirectExecutor final : public Runner {
 public:
  static link::Arena::Shape shape_for(int world);

  // bells[peer] wakes it; null for this rank.
  DirectExecutor(int rank, std::unique_ptr<link::Arena> arena, std::vector<std::shared_ptr<link::Doorbell>> bells);

  // Tells the others what this rank begins, by whatever algorithm: that is how they notice that it takes another one.
  void announce(const Terms& terms);
  void submit(Ticket ticket, const CollectiveRequest& request, const Terms& terms);

  Result<bool> pump() override;
  bool is_idle() const override { return chunks_.empty(); }
  bool arm() override;
  std::vector<Ticket> take_finished() override;
  std::vector<Ticket> abandon() override;
  // Those who could move and do not; all ranks see the same.
  std::vector<int> blocking_ranks() const override;
  bool waits_for(int rank) const override;
  std::uint64_t reduced_elements() const override { return reduced_elements_; }

  // Where every rank runs, by rank, as far as it has said so; `core` is where we do.
  std::span<const int> say_core(int core);

  // An error if a rank has announced another all-reduce where we have announced ours. For when nothing moves.
  Result<void> check_agreement() const;

 private:
  struct Operation {
    Ticket ticket;
    const std::byte* in;
    std::byte* out;
    std::size_t count;
    numbers::ElementType type;
    bool average;
    numbers::WireFormat wire;
    Terms terms;
    std::size_t chunks = 0;  // not taken yet
    Undo undo = {};          // in place

    std::size_t element_bytes() const { return numbers::size_bytes(type); }
    // A sum on the wire is, byte by byte, what is to be written.
    bool is_its_encoding() const { return !average && numbers::is_same(type, wire.format); }
  };
  struct Chunk {
    std::shared_ptr<Operation> of;
    std::size_t first, count;  // elements
    bool is_small;
  };
  struct Progress {  // of one rank, in chunks
    std::uint64_t submitted = 0, contributed = 0, folded = 0, taken = 0;
  };

  const Chunk& chunk(std::uint64_t number) const { return chunks_[number - own().taken]; }
  Progress& own() { return seen_[static_cast<std::size_t>(rank_)]; }
  const Progress& own() const { return seen_[static_cast<std::size_t>(rank_)]; }
  Result<bool> move();
  void look();
  void publish();
  void wake_others();
  bool can_contribute(int rank) const;
  bool can_fold(int rank) const;
  bool can_take(int rank) const;
  bool can_move(int rank) const { return can_contribute(rank) || can_fold(rank) || can_take(rank); }
  bool is_small(std::uint64_t number) const;

  void contribute();
  void contribute(const Chunk& chunk, schedule::Segment segment);
  bool folds_as_it_lies(const Chunk& chunk) const;
  static const std::byte* input(const Chunk& chunk, std::size_t element);
  static std::byte* output(const Chunk& chunk, std::size_t element);
  static void save(const Chunk& chunk, schedule::Segment segment);
  Result<void> fold();
  void take();
  Result<void> check_notes(const Chunk& chunk) const;
  Result<void> sum(const Chunk& chunk, schedule::Segment segment, std::byte* to);
  void write(const Chunk& chunk, schedule::Segment segment, const std::byte* from) const;
  void finish_chunk();
  schedule::Segment segment_of(const Chunk& chunk, int rank) const;

  int rank_, world_;
  std::unique_ptr<link::Arena> arena_;
  std::vector<std::shared_ptr<link::Doorbell>> bells_;
  std::size_t chunk_elements_;
  numbers::Folder folder_;
  std::vector<const std::byte*> payloads_;  // by rank
  std::vector<std::byte> small_sum_;
  ScratchPool buffers_;

  std::deque<Chunk> chunks_;  // not taken yet; the first has the number own().taken
  std::vector<Progress> seen_;
  std::vector<int> cores_;                                              // by rank
  std::uint64_t all_contributed_ = 0, all_folded_ = 0, all_taken_ = 0;  // by every rank
  bool is_published_ = true, sleeps_ = false;
  std::vector<Ticket> finished_;
  std::uint64_t reduced_elements_ = 0;
};

}  // namespace netfold::group

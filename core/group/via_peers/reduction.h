// One all-reduce, or another collective, on its way over a schedule: its memory and its arithmetic. Which piece when is
// the executor's.
//
// Elements that travel as they lie in memory (kNone) are combined as they are, by numbers/combine.h.
//
// Sums are written to `out` as they come. In place, the bytes that they replace are saved before: a tensor that cannot
// be folded whole is put back as it was. 16-bit tensors are folded in FP32 beside, and rounded to `out` at the end;
// beside is also where a reduce-scatter keeps its sums, as most of them are other ranks'.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "group/collective_request.h"
#include "group/undo.h"
#include "group/via_peers/buffer_layout.h"
#include "group/via_peers/message.h"
#include "group/via_peers/plan.h"
#include "numbers/codec.h"
#include "numbers/combine.h"
#include "numbers/fold.h"

namespace netfold::group {

// What all ranks have of some elements, to be folded at once: working memory, made once.
struct Contributions {
  Contributions(std::size_t world, std::size_t count_max)
      : folder(count_max, world), payloads(world), own(count_max * 4), sum(count_max * 4) {}

  numbers::Folder folder;
  std::vector<const std::byte*> payloads;  // by rank, encoded
  std::vector<std::byte> own, sum;         // encoded
};

class Reduction {
 public:
  using Ticket = std::uint64_t;

  Reduction(Ticket ticket, const CollectiveRequest& request, Terms terms, int rank, int world);

  Ticket ticket() const { return ticket_; }
  const Terms& terms() const { return terms_; }
  std::size_t elements() const { return layout_.whole(); }
  std::size_t encoded_bytes(std::size_t count) const {
    return travels_as_it_lies_ ? count * element_bytes_ : numbers::encoded_bytes(wire_, count);
  }
  std::size_t elements_that_fit(std::size_t room_bytes) const {
    return travels_as_it_lies_ ? room_bytes / element_bytes_ : numbers::elements_that_fit(wire_, room_bytes);
  }

  // `slices`: how many parts of the tensor will run by themselves.
  void start(ScratchPool& buffers, std::size_t slices);
  // Elements [first, first + count) of a piece, counted from the tensor's start: whole blocks, or up to the end of a
  // transfer.
  void send(const Piece& piece, std::size_t first, std::size_t count, std::byte* to);
  bool is_well_formed(const std::byte* from, std::size_t count) const {
    return travels_as_it_lies_ || numbers::is_well_formed(wire_, from, count);
  }
  // `from` is well formed, and comes from rank `sender`.
  void receive(schedule::Action action, int sender, const Piece& piece, std::size_t first, std::size_t count,
               const std::byte* from);
  // The fold in rank order; `all` holds what the other ranks sent.
  void fold_all(const Piece& piece, std::size_t first, std::size_t count, Contributions& all);
  void copy(std::size_t first, std::size_t count);           // what no transfer writes, rounded as if it had travelled
  bool finish_slice() { return --unfinished_slices_ == 0; }  // true if it was the last
  void finish(ScratchPool& buffers);                         // once every slice is done
  void put_back(ScratchPool& buffers);                       // instead

 private:
  const std::byte* source(const Piece& piece, std::size_t first) const {
    return piece.is_fresh ? in_ + (first - in_first_) * element_bytes_ : out_at(first);
  }
  std::byte* out_at(std::size_t element) const { return out_ + (element - out_first_) * element_bytes_; }
  std::byte* destination(const Piece& piece, std::size_t first, std::size_t count);
  void combine_all(const std::byte* own, const Piece& piece, std::size_t first, std::size_t count, Contributions& all);
  void add(const std::byte* own, const std::byte* other, bool own_is_first, std::size_t count, std::byte* to) const;
  void complete_sum(std::byte* sum, std::size_t count) const;
  void divide(std::byte* sum, std::size_t count) const;
  void round(std::byte* values, std::size_t count) const;
  void copy_own_part();
  void give_back(ScratchPool& buffers);
  bool overwrites_input() const;
  numbers::WireFormat narrow() const;  // a 16-bit tensor's own format

  Ticket ticket_;
  std::size_t rank_;
  void* result_;  // the request's `out`
  numbers::ElementType type_;
  numbers::WireFormat wire_;
  bool travels_as_it_lies_;
  numbers::ElementType folded_;  // kFp32 or kInt32, or what lies in memory
  std::size_t element_bytes_;    // of that
  Terms terms_;
  std::shared_ptr<const schedule::Parts> parts_;
  BufferLayout layout_;
  std::uint32_t divide_by_;
  bool is_widened_, rounds_, works_beside_;
  bool divides_at_the_end_;  // so that sums travel as the in-network fold's do
  std::size_t unfinished_slices_ = 0;

  const std::byte* in_;  // what was handed in; of `folded_` once started. From element in_first_ of the buffer on
  std::size_t in_first_;
  std::byte* out_ = nullptr;  // from element out_first_ of the buffer on
  std::size_t out_first_ = 0;
  ScratchBuffer sums_;  // beside
  Undo undo_;           // in place
};

}  // namespace netfold::group

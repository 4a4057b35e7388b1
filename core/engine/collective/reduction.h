// One all-reduce, or another collective, on its way over a schedule: its memory and its arithmetic. Which piece when is
// the executor's.
//
// Sums are written to `out` as they come. In place, the bytes that they replace are saved before: a tensor that cannot
// be folded whole is put back as it was. 16-bit tensors are folded in FP32 beside, and rounded to `out` at the end;
// beside is also where a reduce-scatter keeps its sums, as most of them are other ranks'.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/all_reduce.h"
#include "engine/collective/layout.h"
#include "engine/collective/message.h"
#include "engine/collective/plan.h"
#include "engine/rooms.h"
#include "numbers/codec.h"

namespace netfold::engine {

class Reduction {
 public:
  using Ticket = std::uint64_t;

  Reduction(Ticket ticket, const AllReduce& request, numbers::WireFormat wire, Terms terms, int rank, int world);

  Ticket ticket() const { return ticket_; }
  const Terms& terms() const { return terms_; }
  std::size_t elements() const { return layout_.whole(); }
  std::size_t encoded_bytes(std::size_t count) const { return numbers::encoded_bytes(wire_, count); }
  std::size_t elements_that_fit(std::size_t room_bytes) const { return numbers::elements_that_fit(wire_, room_bytes); }

  // `slices`: how many parts of the tensor will run by themselves.
  void start(Rooms& rooms, std::size_t slices);
  // Elements [first, first + count) of a piece, counted from the tensor's start: whole blocks, or up to the end of a
  // transfer.
  void send(const Piece& piece, std::size_t first, std::size_t count, std::byte* to);
  // False if what came is malformed.
  bool receive(schedule::Action action, const Piece& piece, std::size_t first, std::size_t count,
               const std::byte* from);
  void copy(std::size_t first, std::size_t count);           // what no transfer writes, rounded as if it had travelled
  bool finish_slice() { return --unfinished_slices_ == 0; }  // true if it was the last
  void finish(Rooms& rooms);                                 // once every slice is done
  void put_back(Rooms& rooms);                               // instead

 private:
  const std::byte* source(const Piece& piece, std::size_t first) const {
    return piece.is_fresh ? in_ + (first - in_first_) * kElementBytes : out_ + first * kElementBytes;
  }
  std::byte* destination(const Piece& piece, std::size_t first, std::size_t count);
  void fold(const std::byte* base, const std::byte* from, std::size_t count, std::byte* to) const;
  void complete_sum(std::byte* sum, std::size_t count) const;
  void round(std::byte* values, std::size_t count) const;
  void give_back(Rooms& rooms);
  bool overwrites_input() const;
  numbers::WireFormat narrow() const;  // a 16-bit tensor's own format

  static constexpr std::size_t kElementBytes = 4;  // of what is folded: fp32 or int32

  Ticket ticket_;
  AllReduce request_;
  numbers::WireFormat wire_;
  numbers::ElementType folded_;  // kFp32 or kInt32
  Terms terms_;
  Layout layout_;
  std::uint32_t divide_by_;
  bool is_widened_, rounds_, works_beside_;
  std::size_t unfinished_slices_ = 0;

  const std::byte* in_ = nullptr;  // of `folded_`, from element in_first_ of the buffer on
  std::size_t in_first_ = 0;
  std::byte* out_ = nullptr;
  Room sums_;   // beside
  Room saved_;  // in place: what `out` held before, where it has been written
  std::vector<schedule::Segment> written_;
};

}  // namespace netfold::engine

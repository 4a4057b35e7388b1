#include "group/via_peers/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "numbers/kernels.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;

constexpr std::size_t kTile = 1024;      // elements: whole blocks of every bfp shape, and at home in the fastest cache
constexpr std::size_t kFoldedBytes = 4;  // of an element that travels in a format, while it is folded

ElementType folded_type(const CollectiveRequest& request) {
  if (request.format == Format::kNone) return request.type;
  return request.type == ElementType::kInt32 ? ElementType::kInt32 : ElementType::kFp32;
}

BufferLayout layout_of(const CollectiveRequest& request, int world, int rank) {
  if (!request.parts) return buffer_layout_of(request.collective, request.count, world, rank, request.root);
  const std::size_t sent = request.parts->sent(), received = request.parts->received();
  return {sent + received, 1, {0, sent}, {sent, received}};
}

}  // namespace

Reduction::Reduction(Ticket ticket, const CollectiveRequest& request, Terms terms, int rank, int world)
    : ticket_(ticket),
      rank_(static_cast<std::size_t>(rank)),
      result_(request.out),
      type_(request.type),
      wire_{request.format, request.bfp},
      travels_as_it_lies_(request.format == Format::kNone),
      folded_(folded_type(request)),
      element_bytes_(numbers::size_bytes(folded_)),
      terms_(terms),
      parts_(request.parts),
      layout_(layout_of(request, world, rank)),
      divide_by_(request.average ? static_cast<std::uint32_t>(world) : 1),
      is_widened_(!travels_as_it_lies_ &&
                  (request.is_encoded || request.type == ElementType::kFp16 || request.type == ElementType::kBf16)),
      rounds_(numbers::is_narrow(request.format)),
      works_beside_(is_widened_ || terms.collective == schedule::Collective::kReduceScatter ||
                    terms.collective == schedule::Collective::kBarrier ||
                    (terms.collective == schedule::Collective::kReduce && rank != request.root)),
      divides_at_the_end_(divide_by_ > 1 &&
                          (travels_as_it_lies_ || schedule::folds_in_rank_order(request.algorithm.name))),
      in_(static_cast<const std::byte*>(request.in)),
      in_first_(layout_.in.offset) {}

void Reduction::start(ScratchPool& buffers, std::size_t slices) {
  unfinished_slices_ = slices;
  if (!works_beside_) {
    out_ = static_cast<std::byte*>(result_);
    if (parts_) {
      out_first_ = layout_.out.offset;
      return copy_own_part();
    }
    if (overwrites_input()) undo_.start(out_, layout_.whole() * element_bytes_, buffers);
    return;
  }
  sums_ = buffers.take(layout_.whole() * element_bytes_);
  out_ = sums_.bytes.get();
  if (is_widened_) {
    numbers::decode(narrow(), ElementType::kFp32, in_, layout_.in.count, out_ + in_first_ * element_bytes_);
  } else if (terms_.collective == schedule::Collective::kBarrier) {
    std::memset(out_, 0, layout_.whole() * element_bytes_);
  } else {
    return;
  }
  in_ = out_;
  in_first_ = 0;
}

// What a rank has for itself in an exchange is not transferred.
void Reduction::copy_own_part() {
  const auto sum_before = [&](const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank_), std::size_t{0});
  };
  const std::size_t count = parts_->sends[rank_];
  if (count == 0) return;
  std::memcpy(out_ + sum_before(parts_->receives) * element_bytes_, in_ + sum_before(parts_->sends) * element_bytes_,
              count * element_bytes_);
}

// An all-gather in place has its part within the result.
bool Reduction::overwrites_input() const {
  return overlap(in_, layout_.in.count * element_bytes_, result_, layout_.out.count * element_bytes_);
}

numbers::WireFormat Reduction::narrow() const {
  if (type_ == ElementType::kFp32) return wire_;  // encoded
  return {type_ == ElementType::kFp16 ? Format::kFp16 : Format::kBf16};
}

void Reduction::send(const Piece& piece, std::size_t first, std::size_t count, std::byte* to) {
  if (travels_as_it_lies_) {
    std::memcpy(to, source(piece, first), count * element_bytes_);
    return;
  }
  numbers::encode(wire_, folded_, source(piece, first), count, to);
  if (piece.keeps) numbers::decode(wire_, folded_, to, count, destination(piece, first, count));
}

// Two ranks that swap what they have and fold it must get the same bits, also where `a op b` and `b op a` differ: in
// the sign of a zero that is a minimum or a maximum, and in the bits of a NaN. So the lower rank's elements come first.
void Reduction::receive(schedule::Action action, int sender, const Piece& piece, std::size_t first, std::size_t count,
                        const std::byte* from) {
  const bool own_is_first = rank_ < static_cast<std::size_t>(sender);
  if (travels_as_it_lies_) {
    std::byte* const to = destination(piece, first, count);
    if (action == schedule::Action::kFold) {
      const std::byte* const own = source(piece, first);
      return numbers::combine(terms_.operation, folded_, own_is_first ? own : from, own_is_first ? from : own, count,
                              to);
    }
    std::memcpy(to, from, count * element_bytes_);
    return;
  }
  if (action == schedule::Action::kStore) {
    return numbers::decode(wire_, folded_, from, count, destination(piece, first, count));
  }
  const std::byte* const base = source(piece, first);
  std::byte* const to = destination(piece, first, count);
  for (std::size_t done = 0; done < count; done += kTile) {  // a tile stays in the cache from one pass to the next
    const std::size_t tile = std::min(kTile, count - done);
    std::byte* const sum = to + done * element_bytes_;
    add(base + done * element_bytes_, from + encoded_bytes(done), own_is_first, tile, sum);
    if (piece.finishes) complete_sum(sum, tile);
  }
}

void Reduction::fold_all(const Piece& piece, std::size_t first, std::size_t count, Contributions& all) {
  const std::byte* own = source(piece, first);
  if (travels_as_it_lies_) return combine_all(own, piece, first, count, all);
  if (!numbers::is_same(folded_, wire_.format)) {
    numbers::encode(wire_, folded_, own, count, all.own.data());
    own = all.own.data();
  }
  all.payloads[rank_] = own;
  all.folder.fold(wire_, all.payloads, count, all.sum.data());
  numbers::decode(wire_, folded_, all.sum.data(), count, destination(piece, first, count));
}

// In place, a tile at a time: what is written must not be what is still read.
void Reduction::combine_all(const std::byte* own, const Piece& piece, std::size_t first, std::size_t count,
                            Contributions& all) {
  std::byte* const to = destination(piece, first, count);
  const std::size_t tile = all.sum.size() / element_bytes_;
  std::vector<const std::byte*> payloads = all.payloads;
  payloads[rank_] = own;
  for (std::size_t done = 0; done < count; done += tile) {
    const std::size_t part = std::min(tile, count - done), bytes = part * element_bytes_;
    numbers::combine_all(terms_.operation, folded_, payloads, part, all.sum.data());
    std::memcpy(to + done * element_bytes_, all.sum.data(), bytes);
    for (const std::byte*& payload : payloads) payload += bytes;
  }
}

// `other` is encoded, `own` is not.
void Reduction::add(const std::byte* own, const std::byte* other, bool own_is_first, std::size_t count,
                    std::byte* to) const {
  const numbers::Kernels& with = numbers::kernels();
  alignas(64) std::array<float, kTile> decoded;
  if (rounds_) {
    numbers::decode(wire_, ElementType::kFp32, other, count, decoded.data());
    other = reinterpret_cast<const std::byte*>(decoded.data());
  }
  const std::byte* const a = own_is_first ? own : other;
  const std::byte* const b = own_is_first ? other : own;
  if (folded_ == ElementType::kInt32) {
    return with.add_int32(reinterpret_cast<const std::int32_t*>(a), reinterpret_cast<const std::int32_t*>(b), count,
                          reinterpret_cast<std::int32_t*>(to));
  }
  with.add_fp32(reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b), count,
                reinterpret_cast<float*>(to));
}

// The sum is divided where it is complete, and then rounded to what travels: from here on it is only copied.
void Reduction::complete_sum(std::byte* sum, std::size_t count) const {
  if (divide_by_ > 1) divide(sum, count);
  if (rounds_) round(sum, count);
}

// At most a tile.
void Reduction::divide(std::byte* sum, std::size_t count) const {
  if (travels_as_it_lies_) return numbers::divide(folded_, sum, count, divide_by_);
  if (folded_ == ElementType::kInt32) {
    alignas(64) std::array<std::byte, kTile * kFoldedBytes> undivided;
    std::memcpy(undivided.data(), sum, count * element_bytes_);
    return numbers::decode({Format::kInt32}, folded_, undivided.data(), count, sum, divide_by_);
  }
  auto* const floats = reinterpret_cast<float*>(sum);
  numbers::kernels().divide_fp32(floats, static_cast<float>(divide_by_), count, floats);
}

void Reduction::round(std::byte* values, std::size_t count) const {
  alignas(64) std::array<std::byte, kTile * kFoldedBytes> encoded;
  numbers::encode(wire_, folded_, values, count, encoded.data());
  numbers::decode(wire_, folded_, encoded.data(), count, values);
}

std::byte* Reduction::destination(const Piece& piece, std::size_t first, std::size_t count) {
  std::byte* const to = out_at(first);
  if (piece.is_fresh) undo_.save(first * element_bytes_, count * element_bytes_);
  return to;
}

void Reduction::copy(std::size_t first, std::size_t count) {
  const Piece fresh{first + count, true, false, false};
  const bool is_there = source(fresh, first) == out_at(first);
  if (count == 0 || (is_there && !rounds_)) return;
  std::byte* const to = destination(fresh, first, count);
  if (!is_there) std::memcpy(to, source(fresh, first), count * element_bytes_);
  for (std::size_t done = 0; rounds_ && done < count; done += kTile) {
    round(to + done * element_bytes_, std::min(kTile, count - done));
  }
}

void Reduction::finish(ScratchPool& buffers) {
  const auto& [offset, count] = layout_.out;
  std::byte* const result = out_at(offset);
  for (std::size_t done = 0; divides_at_the_end_ && done < count; done += kTile) {
    divide(result + done * element_bytes_, std::min(kTile, count - done));
  }
  if (is_widened_) {
    numbers::encode(narrow(), ElementType::kFp32, result, count, static_cast<std::byte*>(result_));
  } else if (works_beside_ && count > 0) {
    std::memcpy(result_, result, count * element_bytes_);
  }
  give_back(buffers);
}

void Reduction::put_back(ScratchPool& buffers) {
  undo_.put_back();
  give_back(buffers);
}

void Reduction::give_back(ScratchPool& buffers) {
  buffers.give_back(std::move(sums_));
  undo_.finish(buffers);
}

}  // namespace netfold::group

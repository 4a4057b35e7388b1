#include "group/via_peers/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "numbers/kernels.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;

constexpr std::size_t kTile = 1024;  // elements: whole blocks of every bfp shape, and at home in the fastest cache

}  // namespace

Reduction::Reduction(Ticket ticket, const CollectiveRequest& request, Terms terms, int rank, int world)
    : ticket_(ticket),
      rank_(static_cast<std::size_t>(rank)),
      result_(request.out),
      type_(request.type),
      wire_{request.format, request.bfp},
      folded_(request.type == ElementType::kInt32 ? ElementType::kInt32 : ElementType::kFp32),
      terms_(terms),
      layout_(buffer_layout_of(terms.collective, request.count, world, rank)),
      divide_by_(request.average ? static_cast<std::uint32_t>(world) : 1),
      is_widened_(request.type == ElementType::kFp16 || request.type == ElementType::kBf16),
      rounds_(numbers::is_narrow(request.format)),
      works_beside_(is_widened_ || terms.collective == schedule::Collective::kReduceScatter ||
                    terms.collective == schedule::Collective::kBarrier),
      divides_at_the_end_(divide_by_ > 1 && schedule::folds_in_rank_order(request.algorithm.name)),
      in_(static_cast<const std::byte*>(request.in)),
      in_first_(layout_.in.offset) {}

void Reduction::start(ScratchPool& buffers, std::size_t slices) {
  unfinished_slices_ = slices;
  if (!works_beside_) {
    out_ = static_cast<std::byte*>(result_);
    if (overwrites_input()) undo_.start(out_, layout_.whole() * kElementBytes, buffers);
    return;
  }
  sums_ = buffers.take(layout_.whole() * kElementBytes);
  out_ = sums_.bytes.get();
  if (is_widened_) {
    numbers::decode(narrow(), ElementType::kFp32, in_, layout_.in.count, out_ + in_first_ * kElementBytes);
  } else if (terms_.collective == schedule::Collective::kBarrier) {
    std::memset(out_, 0, layout_.whole() * kElementBytes);
  } else {
    return;
  }
  in_ = out_;
  in_first_ = 0;
}

// An all-gather in place has its part within the result.
bool Reduction::overwrites_input() const {
  const auto* const out = static_cast<const std::byte*>(result_);
  const std::less<> before;  // whatever they point into
  return before(in_, out + layout_.out.count * kElementBytes) && before(out, in_ + layout_.in.count * kElementBytes);
}

numbers::WireFormat Reduction::narrow() const {
  return {type_ == ElementType::kFp16 ? Format::kFp16 : Format::kBf16};
}

void Reduction::send(const Piece& piece, std::size_t first, std::size_t count, std::byte* to) {
  numbers::encode(wire_, folded_, source(piece, first), count, to);
  if (piece.keeps) numbers::decode(wire_, folded_, to, count, destination(piece, first, count));
}

void Reduction::receive(schedule::Action action, const Piece& piece, std::size_t first, std::size_t count,
                        const std::byte* from) {
  if (action == schedule::Action::kStore) {
    return numbers::decode(wire_, folded_, from, count, destination(piece, first, count));
  }
  const std::byte* const base = source(piece, first);
  std::byte* const to = destination(piece, first, count);
  for (std::size_t done = 0; done < count; done += kTile) {  // a tile stays in the cache from one pass to the next
    const std::size_t tile = std::min(kTile, count - done);
    std::byte* const sum = to + done * kElementBytes;
    fold(base + done * kElementBytes, from + encoded_bytes(done), tile, sum);
    if (piece.finishes) complete_sum(sum, tile);
  }
}

void Reduction::fold_all(const Piece& piece, std::size_t first, std::size_t count, Contributions& all) {
  const std::byte* own = source(piece, first);
  if (!numbers::is_same(folded_, wire_.format)) {
    numbers::encode(wire_, folded_, own, count, all.own.data());
    own = all.own.data();
  }
  all.payloads[rank_] = own;
  all.folder.fold(wire_, all.payloads, count, all.sum.data());
  numbers::decode(wire_, folded_, all.sum.data(), count, destination(piece, first, count));
}

void Reduction::fold(const std::byte* base, const std::byte* from, std::size_t count, std::byte* to) const {
  const numbers::Kernels& with = numbers::kernels();
  if (folded_ == ElementType::kInt32) {
    return with.add_int32(reinterpret_cast<const std::int32_t*>(base), reinterpret_cast<const std::int32_t*>(from),
                          count, reinterpret_cast<std::int32_t*>(to));
  }
  const auto* const own = reinterpret_cast<const float*>(base);
  auto* const sum = reinterpret_cast<float*>(to);
  if (!rounds_) return with.add_fp32(own, reinterpret_cast<const float*>(from), count, sum);
  alignas(64) std::array<float, kTile> decoded;
  numbers::decode(wire_, ElementType::kFp32, from, count, decoded.data());
  with.add_fp32(own, decoded.data(), count, sum);
}

// The sum is divided where it is complete, and then rounded to what travels: from here on it is only copied.
void Reduction::complete_sum(std::byte* sum, std::size_t count) const {
  if (divide_by_ > 1) divide(sum, count);
  if (rounds_) round(sum, count);
}

// At most a tile.
void Reduction::divide(std::byte* sum, std::size_t count) const {
  if (folded_ == ElementType::kInt32) {
    alignas(64) std::array<std::byte, kTile * kElementBytes> undivided;
    std::memcpy(undivided.data(), sum, count * kElementBytes);
    return numbers::decode({Format::kInt32}, folded_, undivided.data(), count, sum, divide_by_);
  }
  auto* const floats = reinterpret_cast<float*>(sum);
  numbers::kernels().divide_fp32(floats, static_cast<float>(divide_by_), count, floats);
}

void Reduction::round(std::byte* values, std::size_t count) const {
  alignas(64) std::array<std::byte, kTile * kElementBytes> encoded;
  numbers::encode(wire_, folded_, values, count, encoded.data());
  numbers::decode(wire_, folded_, encoded.data(), count, values);
}

std::byte* Reduction::destination(const Piece& piece, std::size_t first, std::size_t count) {
  std::byte* const to = out_ + first * kElementBytes;
  if (piece.is_fresh) undo_.save(first * kElementBytes, count * kElementBytes);
  return to;
}

void Reduction::copy(std::size_t first, std::size_t count) {
  const Piece fresh{first + count, true, false, false};
  const bool is_there = source(fresh, first) == out_ + first * kElementBytes;
  if (count == 0 || (is_there && !rounds_)) return;
  std::byte* const to = destination(fresh, first, count);
  if (!is_there) std::memcpy(to, source(fresh, first), count * kElementBytes);
  for (std::size_t done = 0; rounds_ && done < count; done += kTile) {
    round(to + done * kElementBytes, std::min(kTile, count - done));
  }
}

void Reduction::finish(ScratchPool& buffers) {
  const auto& [offset, count] = layout_.out;
  std::byte* const result = out_ + offset * kElementBytes;
  for (std::size_t done = 0; divides_at_the_end_ && done < count; done += kTile) {
    divide(result + done * kElementBytes, std::min(kTile, count - done));
  }
  if (is_widened_) {
    numbers::encode(narrow(), ElementType::kFp32, result, count, static_cast<std::byte*>(result_));
  } else if (works_beside_ && count > 0) {
    std::memcpy(result_, result, count * kElementBytes);
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

#include "engine/collective/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "numbers/kernels.h"

namespace netfold::engine {
namespace {

using numbers::ElementType;
using numbers::Format;

constexpr std::size_t kTile = 1024;  // elements: whole blocks of every bfp shape, and at home in the fastest cache

bool is_narrow(Format format) {
  return format != Format::kFp32 && format != Format::kInt32;
}

}  // namespace

Reduction::Reduction(Ticket ticket, const AllReduce& request, numbers::WireFormat wire, Terms terms, int rank,
                     int world)
    : ticket_(ticket),
      request_(request),
      wire_(wire),
      folded_(request.type == ElementType::kInt32 ? ElementType::kInt32 : ElementType::kFp32),
      terms_(terms),
      layout_(layout_of(terms.collective, request.count, world, rank)),
      divide_by_(request.average ? static_cast<std::uint32_t>(world) : 1),
      is_widened_(request.type == ElementType::kFp16 || request.type == ElementType::kBf16),
      rounds_(is_narrow(wire.format)),
      works_beside_(is_widened_ || terms.collective == schedule::Collective::kReduceScatter ||
                    terms.collective == schedule::Collective::kBarrier) {}

void Reduction::start(Rooms& rooms, std::size_t slices) {
  unfinished_slices_ = slices;
  in_ = static_cast<const std::byte*>(request_.in);
  in_first_ = layout_.in.offset;
  if (!works_beside_) {
    out_ = static_cast<std::byte*>(request_.out);
    if (overwrites_input()) saved_ = rooms.take(layout_.whole() * kElementBytes);
    return;
  }
  sums_ = rooms.take(layout_.whole() * kElementBytes);
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
  const auto* const in = static_cast<const std::byte*>(request_.in);
  const auto* const out = static_cast<const std::byte*>(request_.out);
  const std::less<> before;  // whatever they point into
  return before(in, out + layout_.out.count * kElementBytes) && before(out, in + layout_.in.count * kElementBytes);
}

numbers::WireFormat Reduction::narrow() const {
  return {request_.type == ElementType::kFp16 ? Format::kFp16 : Format::kBf16};
}

void Reduction::send(const Piece& piece, std::size_t first, std::size_t count, std::byte* to) {
  numbers::encode(wire_, folded_, source(piece, first), count, to);
  if (piece.keeps) numbers::decode(wire_, folded_, to, count, destination(piece, first, count));
}

bool Reduction::receive(schedule::Action action, const Piece& piece, std::size_t first, std::size_t count,
                        const std::byte* from) {
  if (!numbers::is_well_formed(wire_, from, count)) return false;
  if (action == schedule::Action::kStore) {
    numbers::decode(wire_, folded_, from, count, destination(piece, first, count));
    return true;
  }
  const std::byte* const base = source(piece, first);
  std::byte* const to = destination(piece, first, count);
  for (std::size_t done = 0; done < count; done += kTile) {  // a tile stays in the cache from one pass to the next
    const std::size_t tile = std::min(kTile, count - done);
    std::byte* const sum = to + done * kElementBytes;
    fold(base + done * kElementBytes, from + encoded_bytes(done), tile, sum);
    if (piece.finishes) complete_sum(sum, tile);
  }
  return true;
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
  if (divide_by_ > 1 && folded_ == ElementType::kInt32) {
    alignas(64) std::array<std::byte, kTile * kElementBytes> undivided;
    std::memcpy(undivided.data(), sum, count * kElementBytes);
    return numbers::decode({Format::kInt32}, folded_, undivided.data(), count, sum, divide_by_);
  }
  auto* const floats = reinterpret_cast<float*>(sum);
  if (divide_by_ > 1) numbers::kernels().divide_fp32(floats, static_cast<float>(divide_by_), count, floats);
  if (rounds_) round(sum, count);
}

void Reduction::round(std::byte* values, std::size_t count) const {
  alignas(64) std::array<std::byte, kTile * kElementBytes> encoded;
  numbers::encode(wire_, folded_, values, count, encoded.data());
  numbers::decode(wire_, folded_, encoded.data(), count, values);
}

std::byte* Reduction::destination(const Piece& piece, std::size_t first, std::size_t count) {
  std::byte* const to = out_ + first * kElementBytes;
  if (!piece.is_fresh || !saved_.bytes) return to;
  std::memcpy(saved_.bytes.get() + first * kElementBytes, to, count * kElementBytes);
  if (!written_.empty() && written_.back().offset + written_.back().count == first) {
    written_.back().count += count;
  } else {
    written_.push_back({first, count});
  }
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

void Reduction::finish(Rooms& rooms) {
  const auto& [offset, count] = layout_.out;
  const std::byte* const result = out_ + offset * kElementBytes;
  if (is_widened_) {
    numbers::encode(narrow(), ElementType::kFp32, result, count, static_cast<std::byte*>(request_.out));
  } else if (works_beside_ && count > 0) {
    std::memcpy(request_.out, result, count * kElementBytes);
  }
  give_back(rooms);
}

void Reduction::put_back(Rooms& rooms) {
  for (const auto& [offset, count] : written_) {
    std::memcpy(out_ + offset * kElementBytes, saved_.bytes.get() + offset * kElementBytes, count * kElementBytes);
  }
  give_back(rooms);
}

void Reduction::give_back(Rooms& rooms) {
  written_.clear();
  rooms.give_back(std::move(sums_));
  rooms.give_back(std::move(saved_));
}

}  // namespace netfold::engine

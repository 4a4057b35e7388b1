// The header before the elements of a transfer: the terms of the collective, as its sender understands it, and where
// the elements belong. The receiver compares all of it with its own before it touches an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

#include "numbers/combine.h"
#include "schedule/schedule.h"

namespace netfold::group {

// Ranks must agree on these.
struct Terms {
  std::uint64_t number = 0;  // of the collective, counted by every rank
  std::uint64_t elements = 0;
  std::uint64_t options = 0;   // a digest of the algorithm's options
  std::uint8_t algorithm = 0;  // its place in schedule::algorithms()
  std::uint8_t type = 0, format = 0, block = 0, mantissa = 0, average = 0;
  schedule::Collective collective = schedule::Collective::kAllReduce;
  numbers::Operation operation = numbers::Operation::kSum;

  bool operator==(const Terms&) const = default;
};

struct MessageHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t unused = 0;
  Terms terms;
  std::uint64_t offset = 0, count = 0;

  static constexpr std::uint32_t kMagic = 0x666f6c64;
};

constexpr std::size_t kMessageUnit = 64;  // messages are padded to it, so that elements lie well in memory
static_assert(sizeof(Terms) == 32 && sizeof(MessageHeader) <= kMessageUnit);

std::string in_words(const Terms& terms);

// The error when two ranks do not mean the same all-reduce; `remark` is added to what is compared.
tl::unexpected<Error> disagreement(int rank, const Terms& its, int own_rank, const Terms& own,
                                   std::string_view remark = "");

}  // namespace netfold::group

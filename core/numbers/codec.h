// From a worker's tensor to a payload and back.
#pragma once

#include <cstddef>

#include "numbers/format.h"
#include "numbers/kernels.h"

namespace netfold::numbers {

// `out` must hold encoded_bytes(wire, count). can_travel_as(type, wire.format) must hold.
void encode(WireFormat wire, ElementType type, const void* in, std::size_t count, std::byte* out,
            const Kernels& with = kernels());

// The same, but bfp mantissas round up or down by chance, in proportion, so that small gradients are not lost on
// average: a sender's option that the wire does not show. `wire.format` must be kBfp.
void encode_stochastic(WireFormat wire, ElementType type, const void* in, std::size_t count, RoundingSeed seed,
                       std::byte* out, const Kernels& with = kernels());

// The opposite. `divide_by` > 1 turns a sum into an average (in fp32 for floating point, rounded once to `type`;
// truncated towards zero for int32).
void decode(WireFormat wire, ElementType type, const std::byte* in, std::size_t count, void* out,
            std::uint32_t divide_by = 1, const Kernels& with = kernels());

bool is_well_formed(WireFormat wire, const std::byte* in, std::size_t count, const Kernels& with = kernels());

}  // namespace netfold::numbers

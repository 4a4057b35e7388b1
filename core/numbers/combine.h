// Element-wise arithmetic on tensors as they lie in memory, for the operations and element types that the fold kernels
// (kernels.h) do not have. Integers wrap. fp16 and bf16 are computed in FP32 and rounded after each operation. The
// minimum or maximum with a NaN is a NaN, as torch.minimum and torch.maximum have it; which NaN is not said. On bool a
// sum, a maximum and an "or" are the same, and so are a product, a minimum and an "and".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "numbers/format.h"

namespace netfold::numbers {

enum class Operation : std::uint8_t { kSum, kProduct, kMin, kMax, kAnd, kOr, kXor };

const char* name_of(Operation operation);  // "sum", "product", "min", "max", "band", "bor", "bxor"
std::optional<Operation> operation_named(std::string_view name);

// Bits are combined only of integers and bool; complex numbers have no order.
bool is_defined(Operation operation, ElementType type);
// Everything but bool can be averaged.
bool can_average(ElementType type);

// out[i] = a[i] op b[i]. Pointers may be unaligned; `out` may be `a` or `b`. is_defined() must hold.
void combine(Operation operation, ElementType type, const std::byte* a, const std::byte* b, std::size_t count,
             std::byte* out);

// The same over all ranks' elements, pairwise in rank order (fold.h). `out` overlaps no payload.
void combine_all(Operation operation, ElementType type, std::span<const std::byte* const> payloads, std::size_t count,
                 std::byte* out);

// values[i] = values[i] / by; integers are truncated towards zero. can_average() must hold.
void divide(ElementType type, std::byte* values, std::size_t count, std::uint32_t by);

}  // namespace netfold::numbers

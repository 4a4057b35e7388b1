// The expected result of a ring all-reduce, by the schedule and the reference kernels of the software, element by
// element.
#pragma once

#include <cstddef>
#include <vector>

#include "numbers/format.h"

namespace netfold::rtl {

// `inputs`: by rank, all of one size. Every rank has the same result.
std::vector<float> software_ring(const std::vector<std::vector<float>>& inputs, bool bfp, numbers::BfpShape shape);

// Positions where bits differ; any NaN equals any other.
std::size_t differences(const float* left, const float* right, std::size_t count);

}  // namespace netfold::rtl

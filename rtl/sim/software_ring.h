// What a ring all-reduce must give, by the schedule and the reference kernels of the software, one element at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "numbers/format.h"

namespace netfold::rtl {

// `inputs`: by rank, all of one size. The result is that of every rank.
std::vector<float> software_ring(const std::vector<std::vector<float>>& inputs, bool bfp, numbers::BfpShape shape);

// Positions where bits differ; any NaN equals any other.
std::size_t differences(const float* left, const float* right, std::size_t count);

}  // namespace netfold::rtl

// The tables that dispatch.cc chooses from.
#pragma once

#include <vector>

#include "numbers/kernels.h"

namespace netfold::numbers {

const Kernels* reference_kernels();
std::vector<const Kernels*> simd_kernels();  // fastest first; empty where the build has no vector target

}  // namespace netfold::numbers

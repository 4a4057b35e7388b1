// The tables that dispatch.cc chooses from. Each is null where the target of this build cannot have it.
#pragma once

#include "numbers/kernels.h"

namespace netfold::numbers {

const Kernels* reference_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

}  // namespace netfold::numbers

#include "numbers/tables.h"

namespace netfold::numbers {
const Kernels* avx2_kernels() {
  return nullptr;
}
}  // namespace netfold::numbers

// The abilities of a 64-bit ARM processor for which its compiler has no function.
#pragma once

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

namespace netfold {

// Carry-less multiplication (PMULL).
inline bool multiplies_polynomials() {
  return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
}

}  // namespace netfold
#endif

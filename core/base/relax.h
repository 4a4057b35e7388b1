// For the moments between two looks at what another core is about to write.
#pragma once

namespace netfold {

// Leaves the core's resources to whoever else runs on it, for some tens of cycles.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace netfold

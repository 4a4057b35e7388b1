// Sums follow IEEE 754 with subnormals, on every rank. But the modes of floating-point arithmetic belong to a thread: a
// program may flush subnormals to zero (torch.set_flush_denormal), and new threads inherit that.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace netfold {

// While it lasts, this thread has the modes of IEEE 754: nothing flushed to zero, round to nearest even.
class StandardArithmetic {
 public:
  StandardArithmetic() : before_(modes()) {
    if (before_ != kStandard) set_modes(kStandard);
  }
  ~StandardArithmetic() {
    if (before_ != kStandard) set_modes(before_);
  }
  StandardArithmetic(const StandardArithmetic&) = delete;
  StandardArithmetic& operator=(const StandardArithmetic&) = delete;

  // From now on, for a thread of our own.
  static void set() { set_modes(kStandard); }

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t kStandard = 0x1f80;  // no exception traps
  static constexpr unsigned kStatusBits = 0x3f;       // exceptions that came up, not a mode
  static std::uint64_t modes() {
    return _mm_getcsr() & ~kStatusBits;
  }
  static void set_modes(std::uint64_t modes) {
    _mm_setcsr(static_cast<unsigned>(modes));
  }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kStandard = 0;
  static std::uint64_t modes() {
    std::uint64_t modes;
    asm volatile("mrs %0, fpcr" : "=r"(modes));
    return modes;
  }
  static void set_modes(std::uint64_t modes) {
    asm volatile("msr fpcr, %0" : : "r"(modes));
  }
#else
  static constexpr std::uint64_t kStandard = 0;
  static std::uint64_t modes() {
    return kStandard;
  }
  static void set_modes(std::uint64_t) {}
#endif

  const std::uint64_t before_;
};

}  // namespace netfold

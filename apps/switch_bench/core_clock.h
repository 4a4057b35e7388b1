// The time of one core, without what the kernel gave to others: the processor's own counter around a piece of work. If
// the kernel gave the core to another thread meanwhile, the kernel's time of this thread takes the counter's place.
#pragma once

#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace netfold::apps {

class CoreClock {
 public:
  // Of the processor's counter, which has a steady rate: on ARM a lower one, 1 GHz or some tens of MHz.
  static std::uint64_t ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  // Ticks a second; measured once, over 20 ms.
  static double ticks_a_second() {
    static const double rate = [] {
      const Moment begin = now();
      while (std::chrono::steady_clock::now() - begin.time < std::chrono::milliseconds(20)) {
      }
      const Moment end = now();
      const std::chrono::duration<double> took = end.time - begin.time;
      return static_cast<double>(end.ticks - begin.ticks) / took.count();
    }();
    return rate;
  }

  // How often the kernel gave this thread's core to another.
  static long preemptions() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }

  // For how long this thread has had a core, in ticks. A call of the kernel, which takes more time than ticks().
  static double ticks_on_core() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9) * ticks_a_second();
  }

 private:
  struct Moment {
    std::chrono::steady_clock::time_point time;
    std::uint64_t ticks;
  };

  // Both clocks at the same time: of several readings the one that took least, because the kernel may give the core to
  // another thread between the two.
  static Moment now() {
    Moment best{};
    auto least = std::chrono::steady_clock::duration::max();
    for (int reading = 0; reading < 10; ++reading) {
      const auto before = std::chrono::steady_clock::now();
      const std::uint64_t count = ticks();
      const auto took = std::chrono::steady_clock::now() - before;
      if (took >= least) continue;
      least = took;
      best = {before, count};
    }
    return best;
  }
};

// A piece of work on this core, from when this is made.
class Stretch {
 public:
  // Ends the measured time. A thread that wakes up often can put this one aside in every stretch. So such stretches
  // count too, with the time that this thread had the core.
  void end() {
    took_ = CoreClock::ticks() - begun_;
    if (CoreClock::preemptions() == preemptions_) return;
    took_ = std::min(took_, static_cast<std::uint64_t>(CoreClock::ticks_on_core() - begun_on_core_));
  }
  std::uint64_t ticks() const { return took_; }
  // Whether something disturbed it that the kernel does not know, as far as one can tell: it took so much longer than
  // `expected_ticks`, by a factor and what a moment of anything takes.
  bool is_disturbed(double expected_ticks, double factor) const {
    constexpr double kMomentS = 7e-6;
    return static_cast<double>(took_) > factor * expected_ticks + kMomentS * CoreClock::ticks_a_second();
  }

 private:
  const long preemptions_ = CoreClock::preemptions();
  const double begun_on_core_ = CoreClock::ticks_on_core();
  const std::uint64_t begun_ = CoreClock::ticks();
  std::uint64_t took_ = 0;
};

// Instructions of the calling thread in user mode, where the kernel and the machine count them.
class InstructionCounter {
 public:
  InstructionCounter() {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = 1;
    descriptor_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  ~InstructionCounter() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  InstructionCounter(const InstructionCounter&) = delete;

  bool is_there() const { return descriptor_ >= 0; }
  std::uint64_t read_now() const {
    std::uint64_t value = 0;
    if (descriptor_ < 0 || read(descriptor_, &value, sizeof value) != sizeof value) return 0;
    return value;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace netfold::apps

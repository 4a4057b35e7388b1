/* What our compiler's headers expect of glibc, and glibc 2.28 lacks. Linked into everything in a wheel. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* Since 2.32. 0: there may be several threads, so counters of references are atomic. */
char __libc_single_threaded = 0;

/* Since 2.30. The machine's own, or a wait by the system's clock, which errs if somebody sets that clock meanwhile. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  typedef int (*Wait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static _Atomic(Wait) found;
  static atomic_int is_looked_up;
  if (!is_looked_up) {
    found = (Wait)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    is_looked_up = 1;
  }
  if (found) return found(condition, mutex, clock, until);
  struct timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  long long late_ns = (long long)wall.tv_nsec + until->tv_nsec - now.tv_nsec;
  wall.tv_sec += until->tv_sec - now.tv_sec;
  for (; late_ns < 0; late_ns += 1000000000) --wall.tv_sec;
  for (; late_ns >= 1000000000; late_ns -= 1000000000) ++wall.tv_sec;
  wall.tv_nsec = late_ns;
  return pthread_cond_timedwait(condition, mutex, &wall);
}

/* Since 2.36. */
uint32_t arc4random(void) {
  uint32_t drawn;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort(); /* the kernel interrupts only longer requests */
  return drawn;
}

#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <ctime>

#include "base/arithmetic.h"
#include "base/log.h"

namespace netfold {

void set_up_thread(const std::string& name, int core) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  StandardArithmetic::set();
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (core == kAnyCore) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &cores);
  if (pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) != 0) {
    log::warn("thread {} cannot run on core {}: it runs on any core instead", name, core);
  }
}

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

void move_to_core(int core) {
  cpu_set_t allowed, there;
  CPU_ZERO(&there);
  CPU_SET(core, &there);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || sched_setaffinity(0, sizeof there, &there) != 0) return;
  sched_setaffinity(0, sizeof allowed, &allowed);
}

double thread_cpu_s() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace netfold

#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

namespace netfold {
namespace {

// Never destroyed: objects that end with the process still use it.
struct Process {
  std::atomic<unsigned> forks = 0;
  std::mutex mutex;  // held during a fork, so that the child finds the set whole
  std::set<int> closed_in_children;
};

Process& process() {
  static Process* const ours = new Process;
  return *ours;
}

void before_fork() {
  process().mutex.lock();
}

void after_fork_in_parent() {
  process().mutex.unlock();
}

// Only calls that are allowed between fork() and exec(). The numbers stay taken: copies of the parent's objects may
// close them.
void after_fork_in_child() {
  ++process().forks;
  if (const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC); nothing >= 0) {
    for (const int descriptor : process().closed_in_children) dup3(nothing, descriptor, O_CLOEXEC);
    close(nothing);
  }
  process().mutex.unlock();
}

void register_handlers() {
  static const int registered = pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  static_cast<void>(registered);  // it fails only without memory; then a child behaves as it did without this
}

}  // namespace

unsigned forks() {
  register_handlers();
  return process().forks;
}

void close_in_children(int descriptor) {
  register_handlers();
  const std::lock_guard lock(process().mutex);
  process().closed_in_children.insert(descriptor);
}

void forget_in_children(int descriptor) {
  const std::lock_guard lock(process().mutex);
  process().closed_in_children.erase(descriptor);
}

}  // namespace netfold

#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace netfold {
namespace {

std::atomic<unsigned> forks_so_far = 0;

}  // namespace

unsigned forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks_so_far; });
  static_cast<void>(registered);  // it fails only without memory; then a child behaves as it did without this
  return forks_so_far;
}

}  // namespace netfold

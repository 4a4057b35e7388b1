// A child of fork() has copies of its parent's objects without the threads that drive them, on sockets that are still
// the parent's. The child must not end such an object: that would tell the other ranks that the parent leaves, and wait
// for a thread that the child lacks. Nor may it keep a connection open that its parent's death is to close: the other
// ranks learn from that at once that the parent is dead.
#pragma once

#include <memory>

namespace netfold {

// The number of forks between the process that called this first and this process.
unsigned forks();

// From now on, until forget_in_children(), every child of fork() has /dev/null under this number.
void close_in_children(int descriptor);
void forget_in_children(int descriptor);

struct DeleteInOwnProcess {
  unsigned made_after = forks();

  bool is_inherited() const { return forks() != made_after; }
  template <class T>
  void operator()(T* value) const {
    if (!is_inherited()) delete value;
  }
};

// Ends with the process that made it. A child of fork() that has a copy leaves it as it is.
template <class T>
using ProcessOwned = std::unique_ptr<T, DeleteInOwnProcess>;

template <class T>
ProcessOwned<T> owned_by_process(std::unique_ptr<T> value) {
  return ProcessOwned<T>(value.release());
}

template <class T>
bool is_inherited(const ProcessOwned<T>& value) {
  return value.get_deleter().is_inherited();
}

// The answer to a call on an inherited object.
constexpr const char* kInherited =
    "this process was forked from the one that made this group: only that one can use it; make another group here";

}  // namespace netfold

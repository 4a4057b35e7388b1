// A descriptor that closes itself, and that children of fork() do not keep open (base/fork.h).
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fork.h"

namespace netfold::link {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {
    if (number_ >= 0) close_in_children(number_);
  }
  ~Descriptor() {
    if (const int number = release(); number >= 0) close(number);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  int release() {  // the caller's to close
    if (number_ >= 0) forget_in_children(number_);
    return std::exchange(number_, -1);
  }

 private:
  int number_ = -1;
};

// The last call on a descriptor that does not block failed, and may succeed later.
inline bool may_try_again() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace netfold::link

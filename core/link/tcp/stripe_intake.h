// The bytes that one connection has brought, of stripes with tags. A stripe stays here until it is whole and its tag is
// right. So bytes that are not checked never lie where a user reads, nor where another connection has put its own.
// Nothing here does I/O.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "link/tags.h"
#include "link/tcp/stripes.h"

namespace netfold::link {

class StripeIntake {
 public:
  enum class State {
    kPartial,  // more has to come
    kWhole,    // a stripe, and its tag is right
    kWrong,    // no stripe, or its tag is wrong; that does not change any more
  };

  StripeIntake();

  // Where the next bytes of the connection go, as many as are worth fetching; not to be asked for while the state is
  // kWhole. Then add() says how many have come.
  std::span<std::byte> room();
  void add(std::size_t bytes) { end_ += bytes; }

  // Of the first stripe that is here. Checks its tag once.
  State look(const Tags& tags);
  // After look() has said kWhole, until drop().
  bool is_whole() const { return state_ == State::kWhole; }
  Range range() const;
  std::span<const std::byte> bytes() const;
  void drop();

 private:
  std::optional<StripeHeader> header() const;
  std::byte* first() const { return memory_.get() + begin_; }
  std::size_t here() const { return end_ - begin_; }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t begin_ = 0, end_ = 0;  // of what is here
  State state_ = State::kPartial;
};

}  // namespace netfold::link

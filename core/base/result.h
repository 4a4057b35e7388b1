// Errors of the network, the peer and the user are values; bugs assert.
//
// Every Error says in one sentence what happened, whom it concerns and what to do about it; `rank` is set when one
// worker is to blame, so that each survivor can name it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace netfold {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that has no meaning
  kTimeout,          // a bound on waiting was passed
  kPeerFailed,       // another worker died, left or fell silent
  kSwitchFailed,     // the switch died, left or cannot be reached
  kRefused,          // the switch said no, with its reason
  kMismatch,         // workers disagree about what they fold
  kAuth,             // a secret or a tag is wrong
  kSystem,           // the operating system said no
};

constexpr int kNoRank = -1;

struct Error {
  ErrorCode code;
  std::string message;
  int rank = kNoRank;
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, int rank = kNoRank) {
  return tl::unexpected<Error>(Error{code, std::move(message), rank});
}

const char* name_of(ErrorCode code);

// `what` could not be done, for the reason that errno has.
Error system_error(std::string_view what);

}  // namespace netfold

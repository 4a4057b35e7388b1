#include "base/result.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>

namespace netfold {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kPeerFailed: return "peer_failed";
    case ErrorCode::kSwitchFailed: return "switch_failed";
    case ErrorCode::kRefused: return "refused";
    case ErrorCode::kMismatch: return "mismatch";
    case ErrorCode::kAuth: return "auth";
    case ErrorCode::kSystem: return "system";
  }
  return "unknown";
}

Error system_error(std::string_view what) {
  return {ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno)), kNoRank};
}

}  // namespace netfold

#include "group/session.h"

#include <fmt/core.h>

namespace netfold::group {

Error silent_rank(int silent, int rank, Nanoseconds waited) {
  return {
      ErrorCode::kTimeout,
      fmt::format("rank {} sent nothing for {:g} s while this rank ({}) waits for it in a collective: look there for "
                  "a crash, a hang or fewer collectives, or raise the timeout of the group",
                  silent, to_seconds(waited), rank),
      silent};
}

}  // namespace netfold::group

#include "group/via_roce/verbs_channel.h"

namespace netfold::group {

Result<std::unique_ptr<MessageChannel>> open_verbs_channel(const std::string&, wire::roce::Version) {
  return fail(
      ErrorCode::kSystem,
      "this build has no libibverbs: install it (Debian: libibverbs-dev) and build again, or go through a packet "
      "socket");
}

}  // namespace netfold::group

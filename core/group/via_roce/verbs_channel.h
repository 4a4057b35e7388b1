// A message channel of an RDMA NIC that speaks RoCE v1: two reliable connections of libibverbs.
#pragma once

#include <memory>
#include <string>

#include "group/via_roce/message_channel.h"

namespace netfold::group {

// `device` as in `ibv_devices`, "" for the first. kSystem, with what to do, where there is no device, where it has no
// RoCE v1 address, or where this build is without libibverbs (no_verbs.cc).
Result<std::unique_ptr<MessageChannel>> open_verbs_channel(const std::string& device);

}  // namespace netfold::group

// A message channel of an RDMA NIC: two reliable connections of libibverbs.
#pragma once

#include <memory>
#include <string>

#include "group/via_roce/message_channel.h"

namespace netfold::group {

// `device` as in `ibv_devices`, "" for the first. kSystem, with what to do, where there is no device, where it has no
// address of that version of RoCE, or where this build is without libibverbs (no_verbs.cc).
Result<std::unique_ptr<MessageChannel>> open_verbs_channel(const std::string& device, wire::roce::Version version);

}  // namespace netfold::group

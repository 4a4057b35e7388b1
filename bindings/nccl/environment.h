// The settings and the network interfaces of this process, read once.
#pragma once

#include <vector>

#include "base/result.h"
#include "nics.h"
#include "settings.h"

namespace netfold::nccl {

struct Environment {
  Settings settings;
  std::vector<Nic> nics;           // devices, by their numbers
  bool has_way_to_switch = false;  // the first one leads there
};

// An error if a setting makes no sense, or if there is no interface.
const Result<Environment>& environment();

}  // namespace netfold::nccl

// One counter of a group, as a number.
#pragma once

#include "group/group.h"

namespace netfold::group {

double counter(const Group& group, const char* name);

}  // namespace netfold::group

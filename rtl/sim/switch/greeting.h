// Before a job begins, every worker sends a frame to everybody, one after another: so its address is known, and what is
// forwarded to it goes to its port alone.
#pragma once

#include "switch/comparison.h"
#include "switch/job.h"
#include "switch/switch_device.h"

namespace netfold::rtl {

// The ports' sources and sinks are nobody's afterwards. `comparison` sees the frames too, if there is one.
void greet(SwitchDevice& device, const Job& job, Comparison* comparison);

}  // namespace netfold::rtl

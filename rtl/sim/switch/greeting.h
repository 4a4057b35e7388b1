// Before a job begins, every worker in turn broadcasts a frame. So the switch knows its address, and forwards frames
// for it only to its port.
#pragma once

#include "switch/comparison.h"
#include "switch/job.h"
#include "switch/switch_device.h"

namespace netfold::rtl {

// Afterwards the ports have no sources and sinks. A `comparison` gets the frames too.
void greet(SwitchDevice& device, const Job& job, Comparison* comparison);

}  // namespace netfold::rtl

// Compares the hardware's counters by verdict with the software's.
#pragma once

#include <nlohmann/json.hpp>

#include "switch/software_switch.h"
#include "switch/switch_device.h"

namespace netfold::rtl {

// For each verdict's name: [hardware, software], if one of them is not 0.
nlohmann::json verdicts_of(SwitchDevice& device, const SoftwareSwitch& software);
std::uint64_t differing(const nlohmann::json& verdicts);
// Sums of all ports that were never sent.
std::uint64_t sums_lost(SwitchDevice& device);
// Pause frames out of every port whose buffers fill.
void enable_pause(SwitchDevice& device);
// Sets AGG_MODE and AGG_PORT_CFG on both.
void configure(SwitchDevice& device, SoftwareSwitch* software, bool is_float, std::uint32_t ports);

}  // namespace netfold::rtl

// Compares the hardware's counters by verdict with the software's.
#pragma once

#include <nlohmann/json.hpp>

#include "netfold_switch.h"
#include "switch/software_switch.h"
#include "switch/switch_device.h"

namespace netfold::rtl {

// So many verdicts have a counter in the hardware. The software has one more: in a tree a switch stands above it.
constexpr std::uint32_t kCountedVerdicts = (NETFOLD_SWITCH_DROP_ROOM - NETFOLD_SWITCH_ROCE_FORWARDED) / 4 + 1;
static_assert(kCountedVerdicts == static_cast<std::uint32_t>(switching::RoceVerdict::kNotSummed) &&
              kCountedVerdicts + 1 == static_cast<std::uint32_t>(switching::RoceVerdict::kCount));

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

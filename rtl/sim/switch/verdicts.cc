#include "switch/verdicts.h"

#include <bit>
#include <string>

namespace netfold::rtl {

nlohmann::json verdicts_of(SwitchDevice& device, const SoftwareSwitch& software) {
  nlohmann::json all = nlohmann::json::object();
  // Forwarded frames are left out: the software counts all RoCE frames that it does not fold, the hardware all frames.
  for (std::uint32_t number = 1; number < kCountedVerdicts; ++number) {
    const auto verdict = static_cast<switching::RoceVerdict>(number);
    std::uint64_t hardware = 0;
    for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
      hardware += device.read(NETFOLD_SWITCH_ROCE_FORWARDED + NETFOLD_SWITCH_PORT_STRIDE * port + 4 * number);
    }
    const std::uint64_t expected = software.count(verdict);
    if (hardware != 0 || expected != 0) all[switching::name_of(verdict)] = {hardware, expected};
  }
  return all;
}

std::uint64_t differing(const nlohmann::json& verdicts) {
  std::uint64_t count = 0;
  for (const auto& [name, pair] : verdicts.items()) count += pair[0] != pair[1] ? 1 : 0;
  return count;
}

std::uint64_t sums_lost(SwitchDevice& device) {
  std::uint64_t lost = 0;
  for (unsigned port = 0; port < SwitchDevice::kPorts; ++port) {
    lost += device.read(NETFOLD_SWITCH_DROP_SUM + NETFOLD_SWITCH_PORT_STRIDE * port);
  }
  return lost;
}

void enable_pause(SwitchDevice& device) {
  device.write(NETFOLD_SWITCH_PAUSE, (1u << SwitchDevice::kPorts) - 1);
}

void configure(SwitchDevice& device, SoftwareSwitch* software, bool is_float, std::uint32_t ports) {
  const std::uint32_t config =
      static_cast<std::uint32_t>(std::popcount(ports)) << NETFOLD_SWITCH_AGG_PORT_CFG_NUMBER_SHIFT | ports;
  device.write(NETFOLD_SWITCH_AGG_MODE, is_float ? 1 : 0);
  device.write(NETFOLD_SWITCH_AGG_PORT_CFG, config);
  if (software != nullptr) software->set_registers(is_float ? 1 : 0, config);
}

}  // namespace netfold::rtl

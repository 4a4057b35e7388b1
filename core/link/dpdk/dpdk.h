// Frame devices by DPDK: physical NICs by their PCI address, any device string (net_af_packet0,iface=eth1), or the name
// of a kernel interface, which stands for net_af_packet. The build takes dpdk.cc where libdpdk is, else no_dpdk.cc.
#pragma once

#include <functional>

#include "link/frame_devices.h"

namespace netfold::link {

constexpr const char* kRingDevice = "ring";  // a port in memory, whose far end is in this process (ring_device.h)

struct DpdkOptions {
  FrameDeviceOptions devices;
  std::vector<std::string> eal;                       // more arguments for DPDK's environment layer
  std::function<void(const std::string&)> on_notice;  // what the user should know, though it works
};

// Once a process. Errors say which port is wrong, why, and what to do.
Result<std::unique_ptr<FrameDevices>> open_dpdk(const DpdkOptions& options);

bool has_dpdk();

}  // namespace netfold::link

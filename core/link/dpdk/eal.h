// DPDK's environment layer: started once a process, with huge pages where there are some and without where not.
#pragma once

#include <string>
#include <vector>

#include "link/dpdk/dpdk.h"

namespace netfold::link {

bool is_pci_address(const std::string& port);  // 0000:3b:00.0, 3b:00.0

// The device that DPDK opens for a port of the command line: the PCI address, the device string as it is, or
// net_af_packet for a kernel interface. An error if it cannot work, with the reason.
Result<std::string> device_string(const std::string& port, std::size_t number);

// The kernel's interface that a device string is about; empty: none, or none yet (net_tap makes its own).
std::string kernel_interface(const std::string& device);

Result<void> start_eal(const DpdkOptions& options, const std::vector<std::string>& devices);

}  // namespace netfold::link

// The network interfaces of this machine that ranks may use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip_address.h"

namespace netfold::nccl {

struct Nic {
  std::string name;
  std::string pci_path;  // of its device below /sys; "" for a virtual one
  unsigned index = 0;    // the kernel's number for it
  std::uint32_t ip = 0, netmask = 0;
  int speed_mbit_s = 0;
};

// Whether a filter in the syntax of NCCL_SOCKET_IFNAME takes an interface: prefixes with commas; a leading "=" makes
// them whole names, a leading "^" excludes what matches.
bool takes(std::string_view filter, std::string_view name);

// Those that are up and have an IPv4 address, first the one that reaches `first_ip`. Without a filter, loopback and
// docker's bridges only where there is nothing else.
std::vector<Nic> find_nics(const std::string& filter, const IpAddress& first_ip);

}  // namespace netfold::nccl

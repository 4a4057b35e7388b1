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
  IpAddress ip = {}, netmask = {};
  int speed_mbit_s = 0;

  // Whether an address is in the network of this one.
  bool is_near(const IpAddress& other) const;
};

// Whether a filter in the syntax of NCCL_SOCKET_IFNAME takes an interface: prefixes with commas; a leading "=" makes
// them whole names, a leading "^" excludes what matches.
bool takes(std::string_view filter, std::string_view name);

// Those that are up and have an address, first the one that reaches `first_ip`. An interface without an IPv4 address is
// used with an IPv6 address that is valid beyond its link. Without a filter, loopback and docker's bridges only where
// there is nothing else.
std::vector<Nic> find_nics(const std::string& filter, const IpAddress& first_ip);

}  // namespace netfold::nccl

// Where this machine can be reached.
#pragma once

#include <string>

namespace netfold::mpi {

// Names the network stack of this process: equal where one loopback serves both. Machines may share a host name, and
// containers of one machine may have a network of their own.
std::string own_network();
// An address that other machines can reach: what the host's name stands for, or the first interface's. IPv4 comes
// before IPv6, which is in brackets. A machine that has only loopback gives that.
std::string own_address();

}  // namespace netfold::mpi

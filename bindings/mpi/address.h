// Where this machine can be reached.
#pragma once

#include <string>

namespace netfold::mpi {

std::string host_name();
// An address that other machines can reach: what the host's name stands for, or the first interface's. IPv4 comes
// before IPv6, which is in brackets. A machine that has only loopback gives that.
std::string own_address();

}  // namespace netfold::mpi

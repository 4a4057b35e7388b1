// Where this machine can be reached.
#pragma once

#include <string>

namespace netfold::mpi {

std::string host_name();
// An IPv4 address that is not loopback: what the host's name stands for, or the first interface's; loopback if there is
// no other.
std::string own_address();

}  // namespace netfold::mpi

// Where this machine can be reached.
#pragma once

#include <string>

namespace netfold::mpi {

std::string host_name();
// An address that is not loopback, IPv4 if there is one: what the host's name stands for, or the first interface's;
// loopback if there is no other. An IPv6 address is in brackets.
std::string own_address();

}  // namespace netfold::mpi
